/** A line to a server that can be cut: connections end, and new ones are refused until it is mended. Loopback only. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export type Line = {
  /** The server's url, over the line. */
  readonly url: string;
  cut(): void;
  mend(): void;
  close(): Promise<void>;
};

export async function openLine(url: string): Promise<Line> {
  const target = new URL(url);
  const open = new Set<Socket>();
  let isCut = false;
  const server = createServer((near) => {
    if (isCut) {
      near.destroy();
      return;
    }
    const far = connect(Number(target.port || 5432), target.hostname);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const line = new URL(url);
  line.hostname = '127.0.0.1';
  line.port = String((server.address() as AddressInfo).port);
  const cut = () => {
    isCut = true;
    for (const socket of open) socket.destroy();
  };
  return {
    url: line.href,
    cut,
    mend() {
      isCut = false;
    },
    async close() {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
