/** A workflow whose one gated payment takes its approval rule from the run's input, and says what its model heard. */
import { z } from 'zod';
import type { Workflow } from '../../src/workflows/index.ts';
import { workflow } from '../../src/workflows/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { named } from './crew.ts';
import type { Fleet } from './fleet.ts';
import { payAction } from './payments.ts';
import type { Provider } from './provider.ts';

const ruled = z.object({
  to: z.string(),
  amount: z.number().default(1),
  quorum: z.number().default(1),
  expiresMs: z.number().default(60_000),
  executeMs: z.number().default(60_000),
});
export type Ruled = z.input<typeof ruled>;

export function ruledWorkflow(provider: Provider): Workflow {
  const pay = payAction(provider, {
    parameters: ruled as never,
    approval: (args) => {
      const { quorum, expiresMs, executeMs } = args as z.output<typeof ruled>;
      return { policy: 'ruled', quorum, expiresIn: expiresMs, executeWithin: executeMs };
    },
  });
  const model = scriptedModel((turn, request) => {
    const [said] = typeof request.input === 'string' ? [request.input] : request.input;
    const text =
      typeof said === 'string' ? said : said !== undefined && 'content' in said ? String(said.content) : '';
    return turn === 0 ? [{ name: 'pay', arguments: text }] : `heard: ${resultsIn(request).join('|')}`;
  });
  return workflow({
    name: 'ruled',
    version: '1',
    agent: () => named('ruled', { tools: [pay] }),
    modelProvider: scriptedProvider(model),
  });
}

/** Starts a run of the workflow above; it pauses at the payment. */
export function startRuled(fleet: Fleet, rule: Ruled): Promise<string> {
  return fleet.start({ workflow: 'ruled', input: JSON.stringify(rule) });
}
