/** CPU seconds of processes from Linux' /proc, and of Redis from itself. */
import { readdir, readFile } from 'node:fs/promises';
import { openRedis } from '../src/queue/index.ts';

/** Clock ticks per second in /proc/<pid>/stat: 100 on every Linux Node runs on. */
const TICKS = 100;

type Stat = { parent: number; own: number; reaped: number };

/** Fields 4, 14 to 17 of proc(5); the command's name in field 2 may hold anything, so they are counted behind it. */
async function statOf(pid: number | string): Promise<Stat | null> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null);
  if (text === null) {
    return null;
  }
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = (index: number) => Number(fields[index]) / TICKS;
  return { parent: Number(fields[1]), own: ticks(11) + ticks(12), reaped: ticks(13) + ticks(14) };
}

/** User and system time of one process, its threads included. */
export async function processCpu(pid: number): Promise<number> {
  return (await statOf(pid))?.own ?? 0;
}

/** The postmaster, its live children, and those it has buried. */
export async function postgresCpu(postmaster: number): Promise<number> {
  const main = await statOf(postmaster);
  let total = main === null ? 0 : main.own + main.reaped;
  for (const name of await readdir('/proc')) {
    const stat = /^\d+$/.test(name) ? await statOf(name) : null;
    total += stat?.parent === postmaster ? stat.own : 0;
  }
  return total;
}

/** By its own account, so that it may run anywhere. */
export async function redisCpu(redisUrl: string): Promise<number> {
  const redis = openRedis(redisUrl, () => undefined, 'blocking');
  try {
    const info = await redis.info('cpu');
    return [...info.matchAll(/^used_cpu_(?:sys|user)(?:_children)?:([\d.]+)/gm)].reduce(
      (total, match) => total + Number(match[1]),
      0,
    );
  } finally {
    redis.disconnect();
  }
}
