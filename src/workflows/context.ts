import { CountersignError } from '../errors.ts';
import type { RunIdentity, Workflow } from './define.ts';

/**
 * Rebuilds a run's context from its stored identifiers: fresh secrets in, none of them out. The SDK writes a context
 * verbatim into every RunState, so what it gets is an object that serialises to nothing (and lists no keys).
 *
 * @throws CONTEXT_INVALID when the identifiers do not match the workflow's strict schema; whatever `provide` throws.
 */
export async function openContext(workflow: Workflow, ids: unknown, run: RunIdentity): Promise<object> {
  const parsed = workflow.context.safeParse(ids);
  if (!parsed.success) {
    const where = parsed.error.issues[0]?.path.map(String).join('.') ?? '';
    throw new CountersignError(
      'CONTEXT_INVALID',
      `The context does not match the schema of ${workflow.name}@${workflow.version} at "${where}".`,
      {
        details: { workflow: workflow.name, version: workflow.version, field: where },
      },
    );
  }
  const provided: unknown = await workflow.provide(parsed.data, { tenant: run.tenant, runId: run.runId });
  return typeof provided === 'object' && provided !== null ? serialisedToNothing(provided) : {};
}

/**
 * What was provided, as tools read and write it, behind an object that has no keys of its own: the SDK stores a context
 * by `toJSON` in one place and by copying its keys in another (nested states). Methods run on the object itself, so
 * that a class's private state works, and what a tool writes does not end up in a state either.
 */
function serialisedToNothing(provided: object): object {
  const empty: object = Object.create(Object.getPrototypeOf(provided) as object | null);
  return new Proxy(empty, {
    get(_empty, key) {
      if (key === 'toJSON') {
        return () => ({});
      }
      if (key === 'constructor') {
        // The SDK refuses to store a state whose context does not look like a plain object.
        return Object;
      }
      const value: unknown = Reflect.get(provided, key, provided);
      return typeof value === 'function' && !Object.hasOwn(provided, key) ? value.bind(provided) : value;
    },
    has: (_empty, key) => Reflect.has(provided, key),
    set: (_empty, key, value) => Reflect.set(provided, key, value, provided),
  });
}
