import {
  Agent,
  type FunctionTool,
  Handoff,
  RunContext,
  Runner,
  tool as sdkTool,
  type Tool,
} from '@openai/agents';
import { CountersignError } from '../errors.ts';
import { journaledModel } from './model.ts';
import { assertGoing, currentSegment, enterAgentCall, enterCall, enterRun } from './scope.ts';

/** An agent whatever its context and output are: `Agent` is invariant in both, so nothing narrower takes every agent. */
// biome-ignore lint/suspicious/noExplicitAny: see above
export type AnyAgent = Agent<any, any>;

/** What a workflow's agent graph holds, once it has been made safe to run. */
export type WorkflowGraph = {
  agent: AnyAgent;
  /** Every function tool reachable from the agent, through handoffs and agents used as tools. */
  tools: FunctionTool[];
};

/**
 * Which agent stands behind a tool made by `agent.asTool()`. The SDK keeps that to itself, and the ledger must see
 * the tools of such an agent, so its one public method is observed (nothing of its behaviour changes).
 */
const agentBehindTool = new WeakMap<object, AnyAgent>();
const asTool = Agent.prototype.asTool;
Agent.prototype.asTool = function observedAsTool(this: Agent, ...args: Parameters<typeof asTool>) {
  const made = asTool.apply(this, args);
  agentBehindTool.set(made, this);
  return made;
} as typeof asTool;

/** Likewise every run is observed: what user code runs by itself inside a segment must not pass for a part of it. */
const run = Runner.prototype.run as (agent: AnyAgent, ...more: unknown[]) => Promise<unknown>;
Runner.prototype.run = function observedRun(this: Runner, agent: AnyAgent, ...more: unknown[]) {
  return enterRun(agent, () => run.call(this, agent, ...more));
} as typeof Runner.prototype.run;

/** Objects already made safe: factories may share tools and agents between versions. */
const prepared = new WeakSet<object>();

/**
 * Walks the graph of `agent`, wraps what must be wrapped, and refuses what cannot be carried exactly once.
 *
 * @param isGuarded tells an `action()` tool from a plain one.
 * @throws HOSTED_TOOL_REFUSED, TOOL_NOT_GUARDED (a plain tool with an approval rule), WORKFLOW_INVALID
 */
export function inspectGraph(agent: AnyAgent, isGuarded: (tool: object) => boolean): WorkflowGraph {
  const seen = new Set<AnyAgent>();
  const tools = new Set<FunctionTool>();
  const queue: AnyAgent[] = [agent];
  // Grows while it is walked.
  for (const next of queue) {
    if (seen.has(next)) {
      continue;
    }
    seen.add(next);
    if (!(next instanceof Agent)) {
      throw new CountersignError(
        'WORKFLOW_INVALID',
        'The agent factory, or a handoff in it, gave something that is no Agent of this installation of @openai/agents.',
        { details: { found: typeof next } },
      );
    }
    if (next.mcpServers.length > 0) {
      // Their tools are made anew for each turn, so nothing could record or guard them.
      throw outsideLedger(next.name, next.mcpServers[0]?.name ?? 'mcp', 'an MCP server');
    }
    prepareModel(next);
    for (const tool of next.tools as Tool[]) {
      if (tool.type !== 'function') {
        throw outsideLedger(next.name, tool.name, tool.type);
      }
      tools.add(tool);
      const behind = agentBehindTool.get(tool);
      if (behind !== undefined) {
        queue.push(behind);
      }
      if (!isGuarded(tool)) {
        preparePlainTool(tool, behind ?? null);
      }
    }
    for (const handoff of next.handoffs) {
      queue.push(handoff instanceof Handoff ? handoff.agent : handoff);
    }
  }
  return { agent, tools: [...tools] };
}

function outsideLedger(agent: string, name: string, kind: string): CountersignError {
  return new CountersignError(
    'HOSTED_TOOL_REFUSED',
    `Tool "${name}" of agent "${agent}" (${kind}) runs outside the ledger; use an action() or a plain function tool.`,
    { details: { tool: name, agent } },
  );
}

/** A model instance on an agent would bypass the run's provider, and so the journal. */
function prepareModel(agent: AnyAgent): void {
  if (typeof agent.model !== 'string' && !prepared.has(agent.model)) {
    agent.model = journaledModel(agent.model);
    prepared.add(agent.model);
  }
}

/**
 * A plain tool runs under its call's path, and cannot swallow the end of the segment. Its result is recorded, so that a
 * replay sees the same; an agent used as a tool is replayed through its own journal instead. Called by user code it is
 * user code: its call id is not one of ours, and whatever called it is recorded as a whole.
 */
function preparePlainTool(tool: FunctionTool, agent: AnyAgent | null): void {
  if (prepared.has(tool)) {
    return;
  }
  prepared.add(tool);
  const invoke = tool.invoke;
  tool.invoke = async (context, input, details) => {
    const scope = currentSegment(`Tool ${tool.name}`);
    assertGoing(scope);
    if (scope.whose !== 'ours') {
      return invoke(context, input, details);
    }
    const callId = details?.toolCall?.callId ?? '';
    const call = async () => invoke(context, input, details);
    const result =
      agent === null
        ? await scope.port.record(callId, tool.name, () => enterCall(scope, callId, call))
        : await enterAgentCall(scope, callId, { agent, resumed: details?.resumeState !== undefined }, call);
    assertGoing(scope);
    return result;
  };
}

/** What `tool()` makes of an absent or constant `needsApproval`. Any other function is a rule that somebody wrote. */
const CONSTANT_RULE = String(
  sdkTool({
    name: 'constant',
    description: '',
    parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
    execute: () => '',
  }).needsApproval,
);

/**
 * A plain tool that asks for approval would be the SDK's own gate: decided on a copy of the state, bound to nothing.
 * A rule that is a function is refused unasked: what it says of one call tells nothing about the next.
 *
 * @throws TOOL_NOT_GUARDED naming the tool and the fix.
 */
export async function assertUngated(tool: FunctionTool, where: string): Promise<void> {
  const gated =
    String(tool.needsApproval) !== CONSTANT_RULE ||
    (await tool.needsApproval(new RunContext(), {} as never, 'probe'));
  if (gated) {
    throw new CountersignError(
      'TOOL_NOT_GUARDED',
      `Tool "${tool.name}" of ${where} asks for approval but is not an action(); define it with action({ …, recovery, approval }).`,
      {
        details: { tool: tool.name, workflow: where },
      },
    );
  }
}
