/** One process of a lane's fleet, as the driver sees it: it may die at any moment, and says by its trace what it did. */
import { closeSync, openSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startChild } from '../lab/child.ts';
import type { Cleanup } from '../lab/cleanup.ts';
import type { TraceLine } from '../src/failpoints.ts';
import type { ArmOptions, Place, Role } from './role-process.ts';

export type Member = {
  readonly pid: number;
  /** Null: loaded and waiting for a role. */
  role: Role | null;
  alive: boolean;
  /** Its end is part of the schedule. Any other end is a crash of ours. */
  doomed: boolean;
  /** Resolves when the process is gone. */
  readonly ended: Promise<void>;
  play(role: Role, place: Place): Promise<void>;
  /** Gives the role up; the process can be told another. */
  rest(): Promise<void>;
  arm(options: Omit<ArmOptions, 'traceFile'>): Promise<void>;
  disarm(): Promise<void>;
  /** Calls a method of the process; rejects when the process ends first. */
  call<T>(method: string, parameters?: unknown): Promise<T>;
  /** What passed the gate since it was armed, or since the last reading. */
  readTrace(): TraceLine[];
  signal(name: 'SIGKILL' | 'SIGCONT'): void;
  stop(): Promise<void>;
};

let serial = 0;

/** Starts a process without a role. @param options.dir takes its trace. */
export function startMember(cleanup: Cleanup, { module, dir }: { module: URL; dir: string }): Member {
  const child = startChild(cleanup, { module });
  serial += 1;
  const traceFile = join(dir, `trace-${serial}.jsonl`);
  let readTo = 0;
  const member: Member = {
    pid: child.pid,
    role: null,
    alive: true,
    doomed: false,
    ended: child.call('live').then(
      () => undefined,
      () => undefined,
    ),
    async play(role, place) {
      await child.call('play', { role, place });
      member.role = role;
    },
    async rest() {
      await child.call('rest');
      member.role = null;
    },
    async arm(options) {
      writeFileSync(traceFile, '');
      readTo = 0;
      await child.call('arm', { ...options, traceFile });
    },
    disarm: () => child.call('arm', { fault: null, traceFile: null, duplicateFor: null }),
    call: (method, parameters) => child.call(method, parameters),
    readTrace() {
      const text = readFrom(traceFile, readTo);
      readTo += Buffer.byteLength(text);
      return text === ''
        ? []
        : text
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as TraceLine);
    },
    signal(name) {
      if (member.alive) {
        process.kill(child.pid, name);
      }
    },
    stop() {
      member.doomed = true;
      return child.stop();
    },
  };
  void member.ended.then(() => {
    member.alive = false;
  });
  return member;
}

/** The whole lines of the file from a position on; a line still being written is left for the next reading. */
function readFrom(file: string, position: number): string {
  let fd: number;
  try {
    fd = openSync(file, 'r');
  } catch {
    return '';
  }
  try {
    const chunks: Buffer[] = [];
    for (let at = position; ; ) {
      const buffer = Buffer.alloc(65_536);
      const length = readSync(fd, buffer, 0, buffer.length, at);
      if (length === 0) break;
      chunks.push(buffer.subarray(0, length));
      at += length;
    }
    const text = Buffer.concat(chunks).toString('utf8');
    return text.slice(0, text.lastIndexOf('\n') + 1);
  } finally {
    closeSync(fd);
  }
}
