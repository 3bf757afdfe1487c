/**
 * What a call of each step that takes many runs at once says, beside the tenant and the run: the fields of the function's
 * call type (`claim_call` of `claim_runs`, …), by the same names. A test compares the two. Buffers travel as bytea.
 */
export type Steps = {
  claim_runs: {
    wake: number;
    worker: string;
    ttl_ms: number;
    max_attempts: number;
    take_over: boolean;
    workflows: readonly string[];
    state_schemas: readonly string[];
    tools: readonly string[];
  };
  journal_responses: { epoch: number; call: object; actions: readonly object[] };
  intend_actions: {
    epoch: number;
    action: string;
    tool: string;
    proposed_digest: string;
    effective_digest: string;
  };
  settle_actions: {
    action: string;
    attempt: number;
    outcome: string;
    source: string;
    receipt: string;
    sealed_receipt: Buffer | null;
    sealed_result: Buffer | null;
    reason: string | null;
    epoch: number | null;
    backoff_ms: number;
    asked_at: Date | null;
  };
  pause_runs: {
    epoch: number;
    number: number;
    sealed: Buffer;
    state_schema: string;
    manifest: readonly string[];
    approvals: readonly object[];
    usage: object;
    session: object | null;
  };
  finish_runs: {
    epoch: number;
    status: string;
    sealed_output: Buffer | null;
    reason: string | null;
    usage: object;
    calls: readonly object[];
    session: object | null;
  };
};

/** One step of one run. */
export type StepCall<Name extends keyof Steps = keyof Steps> = { tenant: string; run: string } & Steps[Name];

/** A call as it travels, but for its place in the statement. */
export type EncodedCall = { tenant: string; run: string; json: string };

/** @throws TypeError when a value has no JSON: before the call has met any other. */
export function encodeCall<Name extends keyof Steps>({ tenant, ...step }: StepCall<Name>): EncodedCall {
  const fields = Object.entries(step).map(([key, value]) => [
    key,
    value instanceof Uint8Array ? `\\x${Buffer.from(value).toString('hex')}` : value,
  ]);
  return { tenant, run: step.run, json: JSON.stringify(Object.fromEntries(fields)) };
}

/**
 * One statement for several calls. The function is called once for each tenant, with its calls as JSON, each of which
 * carries its place as `n`; and once more where a run has a second call, for that must see what the first one did.
 * Tenants are in the same order everywhere, and the function takes its runs by id, so that two batches that lock the same
 * runs do it in the same order. The statement's name says how many calls of the function it makes, so that a connection
 * prepares few.
 */
export function statementFor(
  name: string,
  encoded: readonly EncodedCall[],
): { name: string; text: string; values: string[] } {
  const places = [...encoded.entries()].sort(
    ([, { tenant: a }], [, { tenant: b }]) => Number(a > b) - Number(a < b),
  );
  const calls: { tenant: string; runs: Set<string>; steps: string[] }[] = [];
  for (const [n, { tenant, run, json }] of places) {
    let call = calls.find((other) => other.tenant === tenant && !other.runs.has(run));
    if (call === undefined) {
      call = { tenant, runs: new Set(), steps: [] };
      calls.push(call);
    }
    call.runs.add(run);
    call.steps.push(`{"n":${n},${json.slice(1)}`);
  }
  const text = (_: unknown, i: number) => `select * from countersign.${name}($${i * 2 + 1}, $${i * 2 + 2})`;
  return {
    name: `cs_${name}_${calls.length}`,
    text: calls.map(text).join(' union all '),
    values: calls.flatMap(({ tenant, steps }) => [tenant, `[${steps.join(',')}]`]),
  };
}

/** @returns the answer to the call at place `n` of a statement. */
export function rowOf(rows: readonly unknown[], n: number): unknown {
  const row = (rows as readonly { n: number }[]).find((each) => each.n === n);
  if (row === undefined) {
    throw new Error('a protocol step gave no row');
  }
  return row;
}
