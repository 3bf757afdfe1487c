import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command } from 'commander';
import { CountersignError } from '../errors.ts';
import { packageRoot } from '../postgres/index.ts';
import { refuseLeftovers, withGlobals } from './command.ts';
import { addActions } from './commands/actions.ts';
import { addApprovals } from './commands/approvals.ts';
import { addDeadLetters } from './commands/dead-letters.ts';
import { addKeys } from './commands/keys.ts';
import { addLocal } from './commands/local.ts';
import { addOperate } from './commands/operate.ts';
import { addProcesses } from './commands/processes.ts';
import { addRuns } from './commands/runs.ts';
import { addStart } from './commands/start.ts';
import { addVersions } from './commands/versions.ts';
import { report } from './failure.ts';

const AFTER = `
Where it works: DATABASE_URL (and REDIS_URL), else the fleet that \`countersign dev\` runs.
Exit codes: 0 done, 1 refused or failed, 2 usage, 3 unavailable (try again), 130 interrupted.`;

/** Runs one command line (without node and the file) and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  try {
    await buildProgram().parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    return report(error, args.includes('--json'));
  }
}

function buildProgram(): Command {
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
  addLocal(program);
  addStart(program);
  addRuns(program);
  addApprovals(program);
  addActions(program);
  addDeadLetters(program);
  addVersions(program);
  addProcesses(program);
  addOperate(program);
  addKeys(program);
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
