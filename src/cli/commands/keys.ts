import { createHash, randomBytes } from 'node:crypto';
import type { Command } from 'commander';
import { readSettings } from '../../config.ts';
import type { Role } from '../../fleet-file.ts';
import { KeyRing } from '../../seal/index.ts';
import { group, leaf } from '../command.ts';
import { globalsOf, print } from '../output.ts';
import { roles } from '../values.ts';

export function addKeys(program: Command): void {
  const keys = group(program, 'keys', 'keys and tokens: made here, kept by you', 'generate');

  leaf(
    keys,
    'generate',
    'print fresh keys for sealing; keep them for good, what they sealed opens with nothing else',
  ).action((_options: object, command: Command) => {
    const spec = KeyRing.generate();
    print(command, {
      json: spec,
      text: `COUNTERSIGN_STATE_KEYS=${spec.state}\nCOUNTERSIGN_REVIEW_KEYS=${spec.review}`,
    });
  });

  leaf(keys, 'token', 'print a fresh token for the api, and its entry for COUNTERSIGN_API_TOKENS')
    .requiredOption('--as <NAME>', 'whose token it is: the subject of every decision made with it')
    .requiredOption('--roles <LIST>', 'producer, reviewer, operator, metrics; with commas', roles)
    .action((options: { as: string; roles: Role[] }, command: Command) => {
      const token = randomBytes(32).toString('base64url');
      const entry = {
        sha256: createHash('sha256').update(token).digest('hex'),
        tenant: globalsOf(command).tenant ?? readSettings().tenant,
        subject: options.as,
        roles: options.roles,
      };
      print(command, {
        json: { token, entry },
        text: `Token, for ${options.as} alone:\n  ${token}\nEntry for COUNTERSIGN_API_TOKENS:\n  ${JSON.stringify(entry)}`,
      });
    });
}
