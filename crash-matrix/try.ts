import { withCleanup } from '../lab/cleanup.ts';
import { openLane } from './lane.ts';
import { paceOf } from './pace.ts';
import { runSchedule } from './run-schedule.ts';
import { SCENARIOS } from './scenarios.ts';
import { scheduleNamed } from './schedule.ts';
import { type Backend, startServers } from './servers.ts';

const [backend = 'redis', ...names] = process.argv.slice(2);
await withCleanup(async (cleanup) => {
  const servers = await startServers(cleanup, backend as Backend);
  const t0 = performance.now();
  const lane = await openLane(cleanup, servers, { index: 0, pace: paceOf(Number(process.env.PACE ?? 1)) });
  console.log('lane', Math.round(performance.now() - t0));
  const list =
    names.length > 0
      ? names.map(scheduleNamed)
      : SCENARIOS.map((s) => scheduleNamed(`${s.name}:worker:x:1:none`));
  for (const schedule of list) {
    const o = await runSchedule(lane, schedule);
    console.log(
      schedule.scenario,
      schedule.role,
      schedule.operation,
      schedule.occurrence,
      schedule.fault,
      o.fired,
      o.tookMs,
      o.violations,
    );
    if (process.env.TRACE) {
      const m = new Map<string, number>();
      for (const l of o.trace)
        m.set(`${l.role}/${l.operation}`, Math.max(m.get(`${l.role}/${l.operation}`) ?? 0, l.occurrence));
      console.log([...m].map(([k, v]) => `${k}=${v}`).join(' '));
    }
  }
  await lane.close();
});
