import { callFunction, type Database } from '../postgres/index.ts';

type Metric = {
  /** As `fleet_numbers` names it; the page puts `countersign_` before it, and `_total` behind a counter. */
  name: string;
  type: 'gauge' | 'counter';
  help: string;
  /** The label and every value it may have: what is not there is 0, so that an alert on it can be written. */
  label?: { name: string; values: readonly string[] };
};

export const METRICS: readonly Metric[] = [
  {
    name: 'runs',
    type: 'gauge',
    help: 'Runs that have not ended.',
    label: {
      name: 'status',
      values: [
        'ready',
        'running',
        'awaiting_approval',
        'awaiting_reconciliation',
        'parked',
        'quarantined',
        'dead_lettered',
      ],
    },
  },
  {
    name: 'oldest_ready_seconds',
    type: 'gauge',
    help: 'How long the longest waiting ready run has been ready: workers are missing or stuck when it grows.',
  },
  { name: 'approvals_pending', type: 'gauge', help: 'Approvals that wait for a decision.' },
  {
    name: 'actions_open',
    type: 'gauge',
    help: 'Actions out in the world without proof.',
    label: { name: 'state', values: ['dispatched', 'outcome_unknown'] },
  },
  {
    name: 'actions_waiting_for_person',
    type: 'gauge',
    help: 'Actions with an unknown outcome that no machine will settle.',
  },
  { name: 'outbox_unsent', type: 'gauge', help: 'Announcements that are not published yet.' },
  {
    name: 'outbox_oldest_due_seconds',
    type: 'gauge',
    help: 'How long the longest waiting announcement has been due: the relay or the queue is down when it grows.',
  },
  { name: 'outbox_dead', type: 'gauge', help: 'Announcements that the queue refused.' },
  {
    name: 'dead_letters_open',
    type: 'gauge',
    help: 'Runs given up and not put back.',
    label: {
      name: 'class',
      values: ['transient_exhausted', 'permanent', 'stalled', 'poison', 'incompatible', 'diverged'],
    },
  },
  {
    name: 'notifications_undelivered',
    type: 'gauge',
    help: 'Notifications that their receiver has not got yet.',
  },
  {
    name: 'alerts',
    type: 'counter',
    help: 'Alerts raised.',
    label: {
      name: 'kind',
      values: [
        'contradiction',
        'action_waits_for_person',
        'run_dead_lettered',
        'security_alert',
        'outbox_dead',
      ],
    },
  },
  {
    name: 'workers_alive',
    type: 'gauge',
    help: 'Processes with a live announcement.',
    label: { name: 'kind', values: ['resume', 'reconciler'] },
  },
];

/** The page in Prometheus' text format, version 0.0.4. */
export async function metricsPage(db: Database): Promise<string> {
  const numbers = await callFunction<{ name: string; label: string; value: number }>(db, 'fleet_numbers', []);
  const found = new Map(numbers.map(({ name, label, value }) => [`${name} ${label}`, value]));
  return METRICS.map(({ name, type, help, label }) => {
    const full = `countersign_${name}${type === 'counter' ? '_total' : ''}`;
    const samples =
      label === undefined
        ? [`${full} ${found.get(`${name} `) ?? 0}`]
        : label.values.map(
            (value) => `${full}{${label.name}="${value}"} ${found.get(`${name} ${value}`) ?? 0}`,
          );
    return [`# HELP ${full} ${help}`, `# TYPE ${full} ${type}`, ...samples, ''].join('\n');
  }).join('');
}
