/** The optional memory of a provider across its own crashes: one JSON line per log entry. */
import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { Effect, LogEntry } from './types.ts';

export type JournalLine = { entry: LogEntry; effect?: Effect };
export type JournalFile = {
  append(entry: LogEntry, effect?: Effect): void;
  clear(): void;
  close(): void;
};

/**
 * Opens or creates the file, hands every line in it to `restore`, and cuts off a torn last line.
 * A written line survives SIGKILL of this process (not a power cut: there is no fsync).
 */
export function openJournalFile(path: string, restore: (line: JournalLine) => void): JournalFile {
  const file = openSync(path, 'a+');
  const bytes = readFileSync(path);
  const wholeLength = bytes.lastIndexOf(0x0a) + 1;
  if (wholeLength < bytes.length) ftruncateSync(file, wholeLength);
  for (const line of bytes.toString('utf8', 0, wholeLength).split('\n')) {
    if (line !== '') restore(JSON.parse(line) as JournalLine);
  }
  return {
    append: (entry, effect) => {
      writeSync(file, `${JSON.stringify({ entry, effect })}\n`);
    },
    clear: () => ftruncateSync(file, 0),
    close: () => closeSync(file),
  };
}
