import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command } from 'commander';
import { CountersignError } from '../errors.ts';
import { packageRoot } from '../postgres/index.ts';
import { refuseLeftovers, withGlobals } from './command.ts';
import { report } from './failure.ts';

const AFTER = `
Where it works: DATABASE_URL (and REDIS_URL), else the fleet that \`countersign dev\` runs.
Exit codes: 0 done, 1 refused or failed, 2 usage, 3 unavailable (try again), 130 interrupted.`;

type Add = (program: Command) => void;

/**
 * The commands, in the order of --help. Each group is loaded only when its command is asked for: most of the time of a
 * short command would else go into loading the SDK, the queue and the web server that it does not use.
 */
const GROUPS: readonly { names: readonly string[]; load: () => Promise<Add> }[] = [
  { names: ['demo', 'dev'], load: async () => (await import('./commands/local.ts')).addLocal },
  { names: ['start'], load: async () => (await import('./commands/start.ts')).addStart },
  { names: ['runs'], load: async () => (await import('./commands/runs.ts')).addRuns },
  { names: ['approvals'], load: async () => (await import('./commands/approvals.ts')).addApprovals },
  { names: ['actions'], load: async () => (await import('./commands/actions.ts')).addActions },
  { names: ['dlq'], load: async () => (await import('./commands/dead-letters.ts')).addDeadLetters },
  {
    names: ['notifications'],
    load: async () => (await import('./commands/notifications.ts')).addNotifications,
  },
  { names: ['versions'], load: async () => (await import('./commands/versions.ts')).addVersions },
  {
    names: ['worker', 'relay', 'reconciler', 'api'],
    load: async () => (await import('./commands/processes.ts')).addProcesses,
  },
  { names: ['migrate', 'deliver'], load: async () => (await import('./commands/operate.ts')).addOperate },
  { names: ['chaos'], load: async () => (await import('./commands/chaos.ts')).addChaos },
  { names: ['keys'], load: async () => (await import('./commands/keys.ts')).addKeys },
];

/** Runs one command line (without node and the file) and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  try {
    const program = await buildProgram(commandIn(args));
    await program.parseAsync(args, { from: 'user' });
    return saidCode();
  } catch (error) {
    return report(error, args.includes('--json'));
  }
}

/** A command that found something wrong has printed its result and says 1 by `process.exitCode`. */
function saidCode(): number {
  const code = Number(process.exitCode ?? 0);
  process.exitCode = undefined;
  return code;
}

/** The command's name when it is plain to see; null when only the whole program can tell. */
function commandIn(args: readonly string[]): string | null {
  const [first] = args.filter((arg) => arg !== '--json');
  return first !== undefined && !first.startsWith('-') ? first : null;
}

async function buildProgram(name: string | null): Promise<Command> {
  // Set before the commands are added, which inherit it: errors come back to runCli, which alone prints them.
  const program = new Command('countersign')
    .description('Carries a human-approved agent action to exactly one effect.')
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
    .helpCommand(false)
    .version(packageVersion(), '-V, --version')
    .addHelpText('after', AFTER);
  withGlobals(program);
  const asked = GROUPS.filter(({ names }) => name !== null && names.includes(name));
  for (const add of await Promise.all((asked.length > 0 ? asked : GROUPS).map(({ load }) => load()))) {
    add(program);
  }
  return program
    .allowExcessArguments()
    .allowUnknownOption()
    .action(() => {
      refuseLeftovers(program);
      const names = program.commands.map((command) => command.name()).join(', ');
      throw new CountersignError('USAGE', `Say what to do: ${names}. See --help.`, {
        details: { kind: 'noCommand' },
      });
    });
}

function packageVersion(): string {
  const text = readFileSync(path.join(packageRoot(), 'package.json'), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
