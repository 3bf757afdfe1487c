import { assertPlainJson, type JsonValue } from '../digests/index.ts';
import type { ActionDefinition } from './define.ts';

/**
 * The review snapshot: everything a reviewer is shown, taken once, at the pause, from the code that will execute.
 *
 * @throws NOT_PLAIN_JSON when the author's `review` returned something that JSON cannot hold.
 */
export function definitionReview(definition: ActionDefinition, args: JsonValue): JsonValue {
  const { ...said } = definition.review(args);
  for (const key of Object.keys(said)) {
    // Optional fields may be written as undefined; JSON has no such thing.
    if (said[key] === undefined) {
      delete said[key];
    }
  }
  assertPlainJson(said, `review of ${definition.name}`);
  return {
    tool: definition.name,
    toolVersion: definition.version,
    target: definition.target(args),
    arguments: args,
    review: said,
    recovery: definition.recovery.kind,
  };
}
