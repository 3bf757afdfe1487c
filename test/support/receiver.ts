/** A receiver of notifications: a real HTTP server that keeps what it is posted and answers as it is told. */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

export type Posted = { method: string; headers: IncomingHttpHeaders; body: string; id: string; kind: string };

export type Receiver = {
  url: string;
  posted: Posted[];
  /** Statuses of the next answers; 200 once they are used up. `hang`: no answer at all. */
  answers: (number | 'hang')[];
  close(): Promise<void>;
};

export async function startReceiver(): Promise<Receiver> {
  const posted: Posted[] = [];
  const answers: (number | 'hang')[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const body = await text(request);
      const { id, kind } = JSON.parse(body) as { id: string; kind: string };
      posted.push({ method: request.method ?? '', headers: request.headers, body, id, kind });
      const answer = answers.shift() ?? 200;
      if (answer !== 'hang') {
        response.writeHead(answer, { location: '/elsewhere' }).end('thanks');
      }
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hook/secret-path`,
    posted,
    answers,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
