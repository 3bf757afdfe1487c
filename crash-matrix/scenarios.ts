/** What is carried while something goes wrong, and how it must end. */
import type { Fault as ProviderFault } from '../examples/release-service/index.ts';

/** What a person does with a run of the scenario, in their own time. */
export type Person = 'approves' | 'rejects' | 'cancels' | 'revokes' | 'replays';

export type Scenario = {
  name: string;
  workflow: string;
  person: Person;
  /** Statuses in which the run may end. */
  ends: readonly string[];
  /** Effects by payee when it ends `completed`; in any other end there must be none. */
  effects: Readonly<Record<string, number>>;
  /** Until something else happens it is the same as that one: what that one's matrix covers is not repeated. */
  startsLike?: string;
  /** The run goes on in a session. */
  session?: boolean;
  /** `joins`: nobody can carry the run when it starts. `leaves`: its worker is asked to stop in the middle of a tool. */
  fleet?: 'joins' | 'leaves';
  /** What the provider does wrong with the first request, as part of the scenario. */
  provider?: { kind: string; fault: ProviderFault };
  /** A revocation may come before or after the effect; both ends are right, each with its own effects. */
  effectsMayBeMissing?: boolean;
};

const completed = ['completed'] as const;
const one = { a: 1 };

const single = (name: string): Scenario => ({
  name,
  workflow: name,
  person: 'approves',
  ends: completed,
  effects: one,
});

/** The provider committed and the answer was lost; or the request was lost before it committed. */
const unlucky = (workflow: string, name: string, fault: ProviderFault): Scenario => ({
  ...single(workflow),
  name: `${workflow}-${name}`,
  startsLike: workflow,
  provider: { kind: workflow, fault },
});

export const SCENARIOS: readonly Scenario[] = [
  single('lookup'),
  single('idempotent'),
  single('manual'),
  single('transactional'),
  { ...single('parallel'), effects: { a: 1, b: 1, c: 1 } },
  single('nested'),
  { ...single('lookup'), name: 'rejection', startsLike: 'lookup', person: 'rejects', effects: {} },
  { ...single('lookup'), name: 'session', session: true },
  { ...single('segments'), effects: { a: 1, b: 1 } },
  single('recorded'),
  { ...single('stumbling'), startsLike: 'lookup' },
  { ...single('hopeless'), name: 'given-up', person: 'replays' },
  single('drifting'),
  { ...single('lookup'), name: 'joining', fleet: 'joins' },
  { ...single('recorded'), name: 'leaving', startsLike: 'recorded', fleet: 'leaves' },
  unlucky('lookup', 'answer-lost', { type: 'commit_then_drop' }),
  unlucky('lookup', 'request-lost', { type: 'drop' }),
  unlucky('idempotent', 'answer-lost', { type: 'commit_then_drop' }),
  unlucky('manual', 'answer-lost', { type: 'commit_then_drop' }),
  unlucky('manual', 'request-lost', { type: 'drop' }),
  {
    ...single('lookup'),
    name: 'cancelled',
    startsLike: 'lookup',
    person: 'cancels',
    ends: ['cancelled'],
    effects: {},
  },
  {
    ...single('lookup'),
    name: 'revoked',
    startsLike: 'lookup',
    person: 'revokes',
    effectsMayBeMissing: true,
  },
];

/** @throws for a name that is none. */
export function scenarioNamed(name: string): Scenario {
  const found = SCENARIOS.find((scenario) => scenario.name === name);
  if (found === undefined) {
    throw new Error(`no scenario "${name}"; there are ${SCENARIOS.map((known) => known.name).join(', ')}`);
  }
  return found;
}
