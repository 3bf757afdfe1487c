import { definitionOf } from '../actions/index.ts';
import { STATE_SCHEMA } from '../agents-sdk/index.ts';
import type { Registry } from './registry.ts';

/** The schema of checkpoint 0, a run's sealed input. */
export const INPUT_SCHEMA = 'input/1';

/** What a worker can carry, as it announces it and as the claim compares it. */
export type Capabilities = { workflows: string[]; stateSchemas: string[]; tools: string[] };

export function announcement(registry: Registry): Capabilities {
  const tools = new Set<string>();
  for (const { actions, adapter } of registry.values()) {
    const accepted = (adapter?.tools ?? []).flatMap((tool) => definitionOf(tool) ?? []);
    for (const definition of [...actions.values(), ...accepted]) {
      tools.add(definition.manifest);
    }
  }
  return { workflows: [...registry.keys()], stateSchemas: [INPUT_SCHEMA, STATE_SCHEMA], tools: [...tools] };
}
