/** The service as its own process: one JSON line when it listens, exit code 0 when told to stop. */
import { parseArgs } from 'node:util';
import { startReleaseService } from './server.ts';

const USAGE = 'usage: main.js [--port N] [--journal FILE] [--exit-with-parent]';

type Options = { port: number; journalFile: string | undefined; exitWithParent: boolean };

function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      port: { type: 'string', default: '0' },
      journal: { type: 'string' },
      'exit-with-parent': { type: 'boolean', default: false },
    },
  });
  const port = Number(values.port);
  if (!/^\d+$/.test(values.port) || port > 65_535) throw new Error('--port is a number from 0 to 65535');
  return { port, journalFile: values.journal, exitWithParent: values['exit-with-parent'] };
}

async function main(): Promise<void> {
  let options: Options;
  try {
    options = readOptions(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${USAGE}\n`);
    process.exitCode = 2;
    return;
  }
  const { port, journalFile, exitWithParent } = options;
  const service = await startReleaseService({ port, ...(journalFile === undefined ? {} : { journalFile }) });
  const stop = (): void => {
    service.close().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  if (exitWithParent) {
    // The parent holds the other end of the pipe; when it dies, however it dies, the pipe ends.
    // (A broken pipe may close without an end; a file such as /dev/null ends without a close.)
    process.stdin.once('end', stop);
    process.stdin.once('close', stop);
    process.stdin.once('error', stop);
    process.stdin.resume();
  }
  process.stdout.write(`${JSON.stringify({ event: 'listening', url: service.url })}\n`);
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
