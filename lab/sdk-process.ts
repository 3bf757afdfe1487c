/**
 * A process that uses the OpenAI Agents SDK as its documentation shows: `tool({ needsApproval: true })`,
 * `state.toString()`, `RunState.fromString`, `run`. Nothing of Countersign is in it.
 */
import { Agent, Runner, RunState, tool } from '@openai/agents';
import { releaseClient } from '../examples/release-service/index.ts';
import { answerCalls } from './answer.ts';
import { deployModel, deployPrompt, deployTool } from './deploy-tool.ts';
import { providerOf } from './scripted-model.ts';

type World = { providerUrl: string; kind: string };
type Verdict = { verdict: 'approve' } | { verdict: 'reject'; message: string };

/** When this process began its resume, on the machine's monotonic clock, and what the agent said at the end. */
export type Resumed = { startedAtMs: number; output: unknown };

const runner = new Runner({ modelProvider: providerOf(deployModel), tracingDisabled: true });

function buildAgent({ providerUrl, kind }: World) {
  const releases = releaseClient(providerUrl);
  const deploy = tool({
    ...deployTool,
    needsApproval: true,
    execute: async (args) => JSON.stringify(await releases.create(kind, args)),
  });
  return new Agent({ name: 'Release', tools: [deploy] });
}

type Loaded = Awaited<ReturnType<typeof load>>;
let loaded: Loaded | null = null;

async function load(world: World, stateText: string) {
  const agent = buildAgent(world);
  return { agent, state: await RunState.fromString(agent, stateText) };
}

answerCalls({
  /** Runs the agent to its pause and returns the serialised state. */
  async pause(world: World): Promise<string> {
    const result = await runner.run(buildAgent(world), deployPrompt);
    if (result.interruptions.length !== 1) {
      throw new Error(`paused with ${result.interruptions.length} interruptions, expected 1`);
    }
    return result.state.toString();
  },

  /** Decides the one pending call and returns the state serialised again. */
  async decide({ world, stateText, decision }: { world: World; stateText: string; decision: Verdict }) {
    const { state } = await load(world, stateText);
    for (const item of state.getInterruptions()) {
      if (decision.verdict === 'approve') {
        state.approve(item);
      } else {
        state.reject(item, { message: decision.message });
      }
    }
    return state.toString();
  },

  /** Opens a decided state, so that `resume` has nothing left to do but run. */
  async open({ world, stateText }: { world: World; stateText: string }): Promise<void> {
    loaded = await load(world, stateText);
  },

  async resume(): Promise<Resumed> {
    if (loaded === null) {
      throw new Error('nothing was opened');
    }
    const startedAtMs = Number(process.hrtime.bigint()) / 1e6;
    const result = await runner.run(loaded.agent, loaded.state);
    return { startedAtMs, output: result.finalOutput };
  },
});
