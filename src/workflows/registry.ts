import { type ActionDefinition, definitionOf } from '../actions/index.ts';
import {
  type AnyAgent,
  assertUngated,
  defaultModelProvider,
  inspectGraph,
  type ModelProvider,
} from '../agents-sdk/index.ts';
import { CountersignError } from '../errors.ts';
import type { Adapter, Workflow } from './define.ts';

/** A workflow whose agent has been built and checked. */
export type RegisteredWorkflow = {
  readonly workflow: Workflow;
  readonly agent: AnyAgent;
  readonly actions: ReadonlyMap<string, ActionDefinition>;
  readonly provider: ModelProvider;
  /** How a checkpoint of the version it is registered under reaches this code; null: that version is this code. */
  readonly adapter: Adapter | null;
};

/** By `name@version`. */
export type Registry = ReadonlyMap<string, RegisteredWorkflow>;

/**
 * Builds every workflow's agent once and checks its whole graph.
 *
 * @throws WORKFLOW_INVALID (two of one name and version; two actions, or an action and a tool, of one name),
 *   TOOL_NOT_GUARDED, HOSTED_TOOL_REFUSED
 */
export async function buildRegistry(workflows: readonly Workflow[]): Promise<Registry> {
  const registry = new Map<string, RegisteredWorkflow>();
  for (const workflow of workflows) {
    const key = `${workflow.name}@${workflow.version}`;
    if (registry.has(key)) {
      throw new CountersignError(
        'WORKFLOW_INVALID',
        `Workflow ${key} is defined twice; give one a new version.`,
        { details: { workflow: workflow.name } },
      );
    }
    const agent = await workflow.agent();
    const graph = inspectGraph(agent, (tool) => definitionOf(tool) !== undefined);
    const actions = new Map<string, ActionDefinition>();
    const plain = new Set<string>();
    for (const tool of graph.tools) {
      const definition = definitionOf(tool);
      if (definition === undefined) {
        await assertUngated(tool, key);
        plain.add(tool.name);
        continue;
      }
      const known = actions.get(definition.name);
      if (known !== undefined && known !== definition) {
        throw new CountersignError(
          'WORKFLOW_INVALID',
          `Workflow ${key} has two actions named "${definition.name}"; the ledger tells them apart by name.`,
          {
            details: { workflow: workflow.name, action: definition.name },
          },
        );
      }
      actions.set(definition.name, definition);
    }
    const shared = [...actions.keys()].find((name) => plain.has(name));
    if (shared !== undefined) {
      throw new CountersignError(
        'WORKFLOW_INVALID',
        `Workflow ${key} has an action and a plain tool named "${shared}"; the ledger tells calls apart by name.`,
        { details: { workflow: workflow.name, action: shared } },
      );
    }
    const provider = workflow.modelProvider?.() ?? defaultModelProvider();
    registry.set(key, { workflow, agent, actions, provider, adapter: null });
  }
  return withAdapters(registry);
}

/** Adds the earlier versions that adapters declare. A version that is loaded itself needs none. */
function withAdapters(registry: Map<string, RegisteredWorkflow>): Registry {
  for (const registered of [...registry.values()]) {
    const { workflow } = registered;
    for (const adapter of workflow.adapters) {
      const key = `${workflow.name}@${adapter.from}`;
      for (const tool of adapter.tools ?? []) {
        const earlier = definitionOf(tool);
        if (earlier === undefined || !registered.actions.has(earlier.name)) {
          throw new CountersignError(
            'WORKFLOW_INVALID',
            `The adapter of ${workflow.name}@${workflow.version} from ${adapter.from} names a tool that is no action() of this version.`,
            { details: { workflow: workflow.name, field: 'adapters.tools' } },
          );
        }
      }
      if (!registry.has(key)) {
        registry.set(key, { ...registered, adapter });
      }
    }
  }
  return registry;
}

/** Does this code stand for that tool in that version: itself, or declared equal by the adapter? */
export function acceptsTool(registered: RegisteredWorkflow, tool: string, version: string): boolean {
  return (
    registered.actions.get(tool)?.version === version ||
    (registered.adapter?.tools ?? []).some((earlier) => {
      const definition = definitionOf(earlier);
      return definition?.name === tool && definition.version === version;
    })
  );
}
