import type { Command } from 'commander';
import { CountersignError } from '../errors.ts';
import { nearest } from '../nearest.ts';

/** A command that does something. Takes the global options too, so that they may be written last. */
export function leaf(parent: Command, usage: string, description: string): Command {
  const [name = '', ...args] = usage.split(' ');
  const command = parent.command(name).description(description);
  for (const argument of args) {
    command.argument(`<${argument}>`);
  }
  return withGlobals(command);
}

/** A noun with verbs. Without one it means `fallback`, whose options it takes; another word gets a suggestion. */
export function group(parent: Command, name: string, description: string, fallback: string): Command {
  const command = withGlobals(parent.command(name).description(description));
  command
    .usage(`[options] [verb]   (default: ${fallback})`)
    .allowExcessArguments()
    .allowUnknownOption()
    .action(async () => {
      const flags = command.args[0]?.startsWith('-') === true ? command.args : [];
      if (flags.length === 0) {
        refuseLeftovers(command, name);
      }
      const { json, tenant } = command.optsWithGlobals<{ json?: boolean; tenant?: string }>();
      const asked = [
        ...(json === true ? ['--json'] : []),
        ...(tenant === undefined ? [] : ['--tenant', tenant]),
      ];
      const chosen = command.commands.find((child) => child.name() === fallback);
      await chosen?.parseAsync([...flags, ...asked], { from: 'user' });
    });
  return command;
}

export function withGlobals(command: Command): Command {
  return command
    .option('--json', 'print exactly one JSON value on stdout')
    .option('--tenant <NAME>', 'default: COUNTERSIGN_TENANT or "default"');
}

/** What is left over on a command that has verbs is a misspelt verb or option. @throws USAGE with the nearest one */
export function refuseLeftovers(parent: Command, prefix = ''): void {
  const [word] = parent.args;
  if (word === undefined) {
    return;
  }
  if (word.startsWith('-')) {
    const flags = parent.options.flatMap((option) => option.long ?? []);
    const meant = nearest(word.split('=')[0] ?? '', flags);
    throw new CountersignError(
      'USAGE',
      `Unknown option '${word}'${prefix === '' ? '' : ` of ${prefix}`}.${meant === undefined ? '' : ` Did you mean ${meant}?`} See --help.`,
      { details: { kind: 'unknownOption', suggestion: meant ?? null } },
    );
  }
  const names = parent.commands.map((child) => child.name()).filter((name) => name !== 'help');
  const meant = nearest(word, names);
  const hint = meant === undefined ? `Known are: ${names.join(', ')}.` : `Did you mean ${meant}?`;
  throw new CountersignError(
    'USAGE',
    `Unknown command '${`${prefix} ${word}`.trim()}'. ${hint} See --help.`,
    {
      details: { kind: 'unknownCommand', suggestion: meant ?? null },
    },
  );
}
