import { createHash, timingSafeEqual } from 'node:crypto';
import type { ApiToken } from '../config.ts';
import { CountersignError } from '../errors.ts';
import type { Role } from '../fleet-file.ts';

/** Who is asking: always from the token, never from the request. */
export type Caller = { readonly tenant: string; readonly subject: string; readonly roles: ReadonlySet<Role> };

/** Longer headers are no token of ours, and are not worth hashing. */
const MAX_TOKEN = 512;

/**
 * Finds the caller behind an `Authorization: Bearer …` header. Tokens are kept and compared as SHA-256, every one of
 * them on every request, so that neither the answer's time nor a dump of the configuration tells a token.
 *
 * @throws UNAUTHENTICATED, the same for a missing, malformed and unknown token.
 */
export function makeAuthenticator(
  tokens: readonly ApiToken[],
): (authorization: string | undefined) => Caller {
  const known = tokens.map((token) => ({
    digest: Buffer.from(token.sha256, 'hex'),
    caller: { tenant: token.tenant, subject: token.subject, roles: new Set(token.roles) },
  }));
  return (authorization) => {
    const given = /^Bearer ([\x21-\x7e]+)$/i.exec(authorization?.slice(0, MAX_TOKEN + 8) ?? '')?.[1] ?? '';
    const digest = createHash('sha256').update(given).digest();
    let found: Caller | null = null;
    for (const { digest: other, caller } of known) {
      if (timingSafeEqual(digest, other)) {
        found = caller;
      }
    }
    if (given === '' || found === null) {
      throw new CountersignError(
        'UNAUTHENTICATED',
        'Send a known token as "Authorization: Bearer TOKEN" (COUNTERSIGN_API_TOKENS lists their SHA-256).',
      );
    }
    return found;
  };
}

/** @throws FORBIDDEN naming the roles that would do. */
export function assertRole(caller: Caller, roles: readonly Role[]): void {
  if (!roles.some((role) => caller.roles.has(role))) {
    throw new CountersignError('FORBIDDEN', `This needs a token with the role ${roles.join(' or ')}.`, {
      details: { roles },
    });
  }
}
