import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { CountersignError } from '../errors.ts';
import { ROLES, writeSecretFile } from '../fleet-file.ts';
import { KeyRing } from '../seal/index.ts';

const schema = z.strictObject({
  keys: z.strictObject({ state: z.string().min(1), review: z.string().min(1) }),
  tokens: z.array(
    z.strictObject({ token: z.string().min(1), subject: z.string().min(1), roles: z.array(z.enum(ROLES)) }),
  ),
});

/** What a local fleet seals with and lets in. */
export type LocalSecrets = z.infer<typeof schema>;

/**
 * The secrets of a home: made once and kept in `secrets.json`, mode 0600, for what the keys have sealed opens with
 * nothing else.
 *
 * @throws CONFIG_INVALID when the file is not one of ours: making new keys over it would lose every run.
 */
export async function keepSecrets(home: string): Promise<LocalSecrets> {
  const file = path.join(home, 'secrets.json');
  let text: string | null = null;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) {
      throw damaged(file);
    }
  }
  if (text === null) {
    const made = makeSecrets();
    await writeSecretFile(file, `${JSON.stringify(made, null, 2)}\n`);
    return made;
  }
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    throw damaged(file);
  }
}

function makeSecrets(): LocalSecrets {
  const token = randomBytes(32).toString('base64url');
  return { keys: KeyRing.generate(), tokens: [{ token, subject: 'dev', roles: [...ROLES] }] };
}

function damaged(file: string): CountersignError {
  return new CountersignError(
    'CONFIG_INVALID',
    `${file} cannot be read; restore it, or remove the whole folder to start afresh (its runs are sealed with these keys).`,
    { details: { field: file } },
  );
}
