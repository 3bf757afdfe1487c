/** How a fault strikes one process, and what the rest of a real fleet does about it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lane } from './lane.ts';
import type { Member } from './member.ts';
import { gateFault, type Schedule } from './schedule.ts';

export type Injection = {
  fired(): boolean;
  /** Resolves when the fault has run its course, or cannot strike any more. Call it when the story has ended. */
  over(): Promise<void>;
};

/** The last operations of a delivery come after its run has ended. */
const LAST_OPERATIONS_MS = 100;

/**
 * Arms the one process that is to fail, and stands by to take its place, to thaw it, or to wait for its late answer.
 *
 * @param recovered fires when the run has ended, or will not.
 */
export async function inject(
  lane: Lane,
  schedule: Schedule,
  target: Member,
  options: { tenant: string; recovered: AbortSignal },
): Promise<Injection> {
  const { role, operation, occurrence, fault } = schedule;
  const ms = delayOf(lane, schedule);
  await target.arm({
    fault: { role, operation, occurrence, fault: gateFault(fault), ms },
    duplicateFor: fault === 'deliver_again' ? options.tenant : null,
  });
  target.doomed = fault.startsWith('kill');
  let fired = false;
  let disarmed = false;
  const watch = async (): Promise<void> => {
    for (;;) {
      // Read before the trace: what is written after the last reading comes from an open gate.
      const last = disarmed;
      // A killed process may be gone before its trace is read.
      fired = target.readTrace().some((line) => line.fired !== undefined) || !target.alive;
      if (fired) {
        return answer(lane, schedule, target, options.recovered);
      }
      if (last) {
        return;
      }
      await sleep(lane.place.pace.stepMs);
    }
  };
  const watching = watch();
  // Awaited in `over`, unless the story itself has failed first.
  watching.catch(() => undefined);
  return {
    fired: () => fired,
    async over() {
      if (!fired) {
        await sleep(LAST_OPERATIONS_MS);
        // A process that is killed or frozen just now never answers; then its trace says so.
        target.disarm().then(
          () => {
            disarmed = true;
          },
          () => undefined,
        );
      }
      await watching;
      target.doomed = !target.alive && target.doomed;
    },
  };
}

/** Publishing has a deadline of its own, longer than all the others. */
function delayOf(lane: Lane, { operation }: Schedule): number {
  const { pace } = lane.place;
  return operation === 'publish' ? pace.publishDelayMs : pace.delayMs;
}

async function answer(lane: Lane, schedule: Schedule, target: Member, recovered: AbortSignal): Promise<void> {
  const { pace } = lane.place;
  switch (schedule.fault) {
    case 'kill_before':
    case 'kill_after':
      await target.ended;
      await lane.fleet.add(schedule.role);
      return;
    case 'stop':
      // It is thawed when the others have recovered without it, and every deadline has passed.
      await Promise.all([lane.fleet.add(schedule.role), sleep(pace.frozenMs), aborted(recovered)]);
      target.signal('SIGCONT');
      await sleep(pace.quietMs);
      return;
    case 'delay_after':
      await sleep(delayOf(lane, schedule) + pace.quietMs);
      return;
    case 'deliver_again':
      await lane.fleet.add('worker');
      await sleep(pace.quietMs);
      return;
    default:
      return;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
