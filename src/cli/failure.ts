import { CommanderError } from 'commander';
import { CountersignError, isCountersignError } from '../errors.ts';
import { exitCodeOf } from '../exit-code.ts';
import { describeError } from '../log.ts';
import { visibleLines } from '../visible-text.ts';

/**
 * Says what went wrong and returns the exit code: `error CODE: message` on stderr, with --json one object on stdout.
 */
export function report(error: unknown, json: boolean): number {
  if (error instanceof CommanderError && error.exitCode === 0) {
    return 0; // help or version, already printed
  }
  const ours = asOurs(error);
  if (json) {
    process.stdout.write(`${JSON.stringify({ error: ours.toJSON() })}\n`);
  } else {
    process.stderr.write(`error ${ours.code}: ${visibleLines(ours.message)}\n`);
  }
  return exitCodeOf(ours);
}

function asOurs(error: unknown): CountersignError {
  if (isCountersignError(error)) {
    return error;
  }
  if (error instanceof CommanderError) {
    return new CountersignError('USAGE', usageText(error.message), {
      details: { kind: error.code.replace('commander.', '') },
    });
  }
  // Nobody foresaw it. Its text may quote data, so the class, code and place must do.
  const known = describeError(error);
  const where = [known.type, known.code, known.at].filter((part) => part !== undefined).join(' ');
  return new CountersignError('INTERNAL', `An unforeseen error ended this command (${where}).`, {
    details: { type: String(known.type) },
    cause: error,
  });
}

/** commander writes `error: unknown command 'strat'` and `(Did you mean start?)` on a line of its own. */
function usageText(message: string): string {
  // What was typed is not repeated: it may be long, or a secret in the wrong place.
  const quiet = message.replace(/^error: /, '').replace(/ argument '[\s\S]*' is invalid\./, ' is invalid.');
  const [first = '', ...more] = quiet.split('\n');
  const hint = more
    .map((line) => line.trim().replace(/^\((.*)\)$/, '$1'))
    .filter((line) => line !== '')
    .join(' ');
  const text = first.charAt(0).toUpperCase() + first.slice(1);
  return `${text}${/[.?]$/.test(text) ? '' : '.'}${hint === '' ? '' : ` ${hint}`} See --help.`;
}
