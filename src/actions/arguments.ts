import {
  assertPlainJson,
  canonicalJson,
  digestOf,
  digestParts,
  type JsonObject,
  parseStrictJson,
} from '../digests/index.ts';
import { isCountersignError } from '../errors.ts';
import type { ActionDefinition } from './define.ts';

/** Arguments of one call, from the model's text to what is reviewed and what runs. */
export type PreparedArguments =
  | {
      ok: true;
      proposedDigest: string;
      /** After the schema: defaults applied. What a reviewer sees and `execute` receives. */
      effective: JsonObject;
      effectiveDigest: string;
      /** Null for a repeatable action. */
      operationDigest: string | null;
    }
  | {
      ok: false;
      proposedDigest: string;
      reason: 'ARGUMENTS_REFUSED' | 'ARGUMENTS_NOT_STABLE';
      message: string;
    };

/**
 * Never throws for what a model wrote: hostile or malformed arguments are refused with a text that the model can act
 * on and that quotes none of them.
 *
 * The schema runs twice: a default such as `new Date()`, or a transform to something JSON cannot hold, would make the
 * reviewed value differ from the one that runs (`ARGUMENTS_NOT_STABLE`).
 */
export function prepareArguments(
  definition: ActionDefinition,
  tenant: string,
  text: string,
): PreparedArguments {
  let proposedDigest = digestParts(['unparsed', text]);
  try {
    const proposed = parseStrictJson(text);
    proposedDigest = digestOf(proposed);
    const first = definition.parameters.safeParse(proposed);
    if (!first.success) {
      const issue = first.error.issues[0];
      const where = issue === undefined ? '' : issue.path.map(String).join('.').slice(0, 120);
      return {
        ok: false,
        proposedDigest,
        reason: 'ARGUMENTS_REFUSED',
        message: `the arguments do not match the schema of ${definition.name} at "${where}" (${issue?.code ?? 'invalid'})`,
      };
    }
    const effective: unknown = first.data;
    assertPlainJson(effective, 'arguments');
    const again = definition.parameters.safeParse(proposed);
    if (!again.success || canonicalJson(again.data as JsonObject) !== canonicalJson(effective)) {
      return {
        ok: false,
        proposedDigest,
        reason: 'ARGUMENTS_NOT_STABLE',
        message: 'parsing the same arguments twice gave two results',
      };
    }
    const effectiveDigest = digestOf(effective);
    const operationDigest = definition.repeatable
      ? null
      : digestParts([tenant, definition.name, definition.target(effective), effectiveDigest]);
    return { ok: true, proposedDigest, effective: effective as JsonObject, effectiveDigest, operationDigest };
  } catch (error) {
    if (isCountersignError(error, 'ARGUMENTS_REFUSED')) {
      return { ok: false, proposedDigest, reason: 'ARGUMENTS_REFUSED', message: error.message };
    }
    if (isCountersignError(error, 'NOT_PLAIN_JSON')) {
      return { ok: false, proposedDigest, reason: 'ARGUMENTS_NOT_STABLE', message: error.message };
    }
    throw error;
  }
}
