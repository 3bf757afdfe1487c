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
    .map(([name, value]) => `${name}=${shortly(name, value)}`);
  const words = [...(level === undefined ? [] : [level]), String(record.msg ?? ''), ...fields];
  return visibleText(words.join(' ')).text;
}

/** Of an error its codes: its message, if it has one of ours, is in the details of the whole record. */
function shortly(name: string, value: unknown): string {
  if (name === 'err' && typeof value === 'object' && value !== null) {
    const { type, code, cause } = value as { type?: string; code?: string; cause?: unknown };
    return `${code ?? type ?? 'unknown'}${cause === undefined ? '' : ` (${shortly('err', cause)})`}`;
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
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
