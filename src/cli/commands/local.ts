import path from 'node:path';
import type { Command } from 'commander';
import { readSettings } from '../../config.ts';
import { runDemo, runDev } from '../../dev/index.ts';
import { fleetFilePath } from '../../fleet-file.ts';
import { leaf } from '../command.ts';
import { facts, globalsOf, print } from '../output.ts';
import { wholeNumber } from '../values.ts';

/** The whole fleet on this machine: to look at once (demo), to play with (dev). */
export function addLocal(program: Command): void {
  leaf(
    program,
    'demo',
    'the main job on a fleet of its own: pause, approve, kill a worker, see exactly one effect',
  )
    .option('--verbose', 'show what the processes say')
    .action(async (flags: { verbose?: boolean }, command: Command) => {
      const { json } = globalsOf(command);
      const narrate = (line: string) => (json ? process.stderr : process.stdout).write(`${line}\n`);
      const report = await runDemo({
        settings: readSettings(),
        narrate,
        note: (name, line) => (flags.verbose === true ? note(name, line) : undefined),
      });
      if (json) {
        print(command, { json: report, text: '' });
      }
    });

  leaf(program, 'dev', 'the whole fleet, left running: kill things and see what happens')
    .option('--workflows <FILE>', 'yours; default: COUNTERSIGN_WORKFLOWS, else the examples')
    .option('--workers <N>', 'resume workers', wholeNumber(1, 32), 2)
    .option(
      '--port <N>',
      'of the api; default: PORT, else 7300 or, if that is taken, a free one',
      wholeNumber(0, 65_535),
    )
    .action(async (flags: { workflows?: string; workers: number; port?: number }, command: Command) => {
      const settings = readSettings();
      await runDev({
        settings: { ...settings, port: flags.port ?? settings.port },
        workflowsFile: flags.workflows ?? settings.workflowsFile,
        workers: flags.workers,
        note,
        onReady: ({ home, fleet, pids }) =>
          print(command, {
            json: { event: 'ready', home, apiUrl: fleet.apiUrl, providerUrl: fleet.providerUrl, pids },
            text: whatNext(home, fleet.apiUrl, fleet.providerUrl, pids),
          }),
      });
    });
}

/** Widest name of a process: `reconciler`. */
const NAME_WIDTH = 10;

function note(name: string, line: string): void {
  process.stderr.write(`${name.padEnd(NAME_WIDTH)} | ${line}\n`);
}

function whatNext(home: string, apiUrl: string, providerUrl: string, pids: Record<string, number>): string {
  const here = home === path.resolve('.countersign') ? '' : `COUNTERSIGN_HOME=${home} `;
  const c = `${here}npx countersign`;
  const worker = pids['worker-1'] ?? '<worker pid>';
  return `
Everything is up.
${facts([
  ['api', `${apiUrl} (token in ${fleetFilePath(home)})`],
  ['outside world', `${providerUrl}/counts`],
  ...Object.entries(pids).map(([name, pid]) => [name, `pid ${pid}`] as [string, string]),
])}

Type in another terminal:
  ${c} start release --input "deploy v2.4.1 to production" --wait
  ${c} approvals                      what waits for your word
  ${c} approvals approve APPROVAL     see the card, and say yes
  ${c} deliver --duplicate 3 RUN      deliver its job three times more
  kill -9 ${worker}                           a worker; another goes on
  ${c} chaos kill-workers             one worker after the other, and the checker's verdict
  ${c} runs explain RUN               what happened, in plain words
  curl ${providerUrl}/counts              calls and effects per key

Ctrl-C stops everything.
`;
}
