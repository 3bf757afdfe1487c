import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Starts something on `preferred` if nothing listens there on 127.0.0.1, else on a free port. Another program may take
 * the port in between, such as a second fleet that starts at the same moment: then it is started on another.
 *
 * @returns the port. @throws what `start` throws while its port is still free.
 */
export async function startOnFreePort(
  preferred: number,
  start: (port: number) => Promise<unknown>,
): Promise<number> {
  const port = await choosePort(preferred);
  try {
    await start(port);
    return port;
  } catch (error) {
    if ((await tryPort(port)) === port) {
      throw error;
    }
    return startOnFreePort(0, start);
  }
}

/** `preferred` if nothing listens there on 127.0.0.1, else a free port. */
async function choosePort(preferred: number): Promise<number> {
  return (await tryPort(preferred)) ?? (await tryPort(0)) ?? preferred;
}

async function tryPort(port: number): Promise<number | null> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : null;
  } catch {
    return null;
  } finally {
    server.close();
  }
}
