import {
  assertPlainJson,
  canonicalJson,
  digestOf,
  digestParts,
  type JsonObject,
  type JsonValue,
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
  // As a JSON string, for a raw text may hold what has no UTF-8 and so no digest.
  let proposedDigest = digestParts(['unparsed', JSON.stringify(text)]);
  try {
    const proposed = parseStrictJson(text);
    proposedDigest = digestOf(proposed);
    const first = parseBySchema(definition, proposed);
    if (!first.ok) {
      return {
        ok: false,
        proposedDigest,
        reason: 'ARGUMENTS_REFUSED',
        message: `the arguments do not match the schema of ${definition.name} at ${first.where}`,
      };
    }
    const { effective } = first;
    assertPlainJson(effective, 'arguments');
    const again = parseBySchema(definition, proposed);
    if (!again.ok || canonicalJson(again.effective as JsonObject) !== canonicalJson(effective)) {
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

type Parsed = { ok: true; effective: unknown } | { ok: false; where: string };

/** A refinement or transform of the author's that throws for what a model wrote is a refusal like any other. */
function parseBySchema(definition: ActionDefinition, proposed: JsonValue): Parsed {
  try {
    let result = definition.parameters.safeParse(proposed);
    const nulls = result.success
      ? []
      : result.error.issues.filter(({ path }) => valueAt(proposed, path) === null);
    if (nulls.length > 0) {
      // The SDK's strict schemas make every optional field required and nullable: a model says null for "left out".
      const stripped = structuredClone(proposed);
      for (const { path } of nulls) {
        remove(stripped, path);
      }
      result = definition.parameters.safeParse(stripped);
    }
    if (result.success) {
      return { ok: true, effective: result.data };
    }
    const issue = result.error.issues[0];
    return {
      ok: false,
      where: `"${issue?.path.map(String).join('.').slice(0, 120)}" (${issue?.code ?? 'invalid'})`,
    };
  } catch {
    return { ok: false, where: '"" (the schema threw)' };
  }
}

type Path = readonly PropertyKey[];

function valueAt(value: JsonValue, path: Path): JsonValue | undefined {
  let at: JsonValue | undefined = value;
  for (const key of path) {
    at =
      typeof at === 'object' && at !== null && Object.hasOwn(at, key)
        ? (at as JsonObject)[String(key)]
        : undefined;
  }
  return at;
}

/** Removes an object's member; an array's element stays, for the others would move. */
function remove(value: JsonValue, path: Path): void {
  const parent = valueAt(value, path.slice(0, -1));
  if (typeof parent === 'object' && parent !== null && !Array.isArray(parent)) {
    delete parent[String(path.at(-1))];
  }
}
