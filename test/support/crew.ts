/** Agents for tests: an agent's instructions are its name, and one scripted model plays them all. */
import { Agent } from '@openai/agents';
import type { AnyAgent } from '../../src/agents-sdk/index.ts';
import { type Workflow, workflow } from '../../src/workflows/index.ts';
import { resultsIn, scriptedModel, scriptedProvider, type Turn } from '../fixtures/scripted.ts';

/** What the agent of that name says in that turn, given the results of the tool calls it has made. */
export type Script = (agent: string, turn: number, results: string[]) => Turn | Promise<Turn>;

export type CrewSettings = Omit<
  ConstructorParameters<typeof Agent<unknown, 'text'>>[0],
  'name' | 'instructions'
>;

export function named(name: string, settings: CrewSettings = {}): Agent<unknown, 'text'> {
  return new Agent({ name, instructions: name, ...settings });
}

export function modelOf(script: Script) {
  return scriptedModel((turn, request) => script(request.systemInstructions ?? '', turn, resultsIn(request)));
}

/** A workflow called `agents`. */
export function crew(
  build: () => AnyAgent,
  script: Script | ReturnType<typeof modelOf>,
  settings: { maxTurns?: number } = {},
): Workflow {
  const model = typeof script === 'function' ? modelOf(script) : script;
  return workflow({
    name: 'agents',
    version: '1',
    agent: build,
    modelProvider: scriptedProvider(model),
    ...settings,
  });
}
