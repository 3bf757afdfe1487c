/** A worker's own V8 CPU profile, between two calls of the parent. */
import { writeFile } from 'node:fs/promises';
import { Session } from 'node:inspector/promises';

let session: Session | null = null;

export const profiling = {
  async startProfile(): Promise<void> {
    session = new Session();
    session.connect();
    await session.post('Profiler.enable');
    await session.post('Profiler.setSamplingInterval', { interval: 500 });
    await session.post('Profiler.start');
  },
  /** Writes a .cpuprofile, which Chrome's developer tools open too. */
  async stopProfile(file: string): Promise<void> {
    if (session === null) {
      throw new Error('no profile was started');
    }
    const { profile } = await session.post('Profiler.stop');
    session.disconnect();
    session = null;
    await writeFile(file, JSON.stringify(profile));
  },
};
