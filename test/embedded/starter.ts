/** A process of its own that starts the server of argv[2], prints the handle, and exits or waits for a signal. */
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';

const [, , dir = '', then] = process.argv;
const { url, pid, attached } = await startEmbeddedPostgres({ dir, durable: false });
process.stdout.write(`${JSON.stringify({ url, pid, attached })}\n`);
// With 'exit' nothing is left to do: if the server kept the event loop alive, this process would hang.
if (then === 'wait') setInterval(() => undefined, 60_000);
