#!/usr/bin/env node
import { runCli } from './index.ts';

// `countersign runs | head -1`: the reader has seen enough.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

const code = await runCli(process.argv.slice(2));
// Only once everything written has left: stdout may be a pipe.
process.stdout.write('', () => process.exit(code));
