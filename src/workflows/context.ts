import { CountersignError } from '../errors.ts';
import type { RunIdentity, Workflow } from './define.ts';

/**
 * Rebuilds a run's context from its stored identifiers: fresh secrets in, none of them out. The SDK writes a context
 * verbatim into every RunState, so what it gets is an object that serialises to nothing.
 *
 * @throws CONTEXT_INVALID when the identifiers do not match the workflow's strict schema.
 */
export function openContext(workflow: Workflow, ids: unknown, run: RunIdentity): object {
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
  const provided = workflow.provide(parsed.data, run);
  const context: object = typeof provided === 'object' && provided !== null ? Object.create(provided) : {};
  Object.defineProperty(context, 'toJSON', { value: () => ({}), enumerable: false });
  return context;
}
