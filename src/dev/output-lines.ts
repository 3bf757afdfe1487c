import { visibleText } from '../visible-text.ts';

/** pino's numbers for what is worth a word. */
const LEVELS: Record<number, string> = { 40: 'warn', 50: 'ERROR', 60: 'FATAL' };
/** Fields that say nothing here: the prefix names the process. */
const BORING = new Set(['level', 'time', 'pid', 'hostname', 'name', 'msg']);

/** One line of a child, for a person: a log record becomes `message key=value …`, anything else stays as it is. */
export function readableLine(line: string): string {
  const record = recordOf(line);
  if (record === null) {
    return visibleText(line).text;
  }
  const level = LEVELS[Number(record.level)];
  const fields = Object.entries(record)
    .filter(([name]) => !BORING.has(name))
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  const words = [...(level === undefined ? [] : [level]), String(record.msg ?? ''), ...fields];
  return visibleText(words.join(' ')).text;
}

function recordOf(line: string): Record<string, unknown> | null {
  if (!line.startsWith('{')) {
    return null;
  }
  try {
    const value = JSON.parse(line) as Record<string, unknown>;
    return 'level' in value && 'msg' in value ? value : null;
  } catch {
    return null;
  }
}
