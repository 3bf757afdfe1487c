/** One step into a document: an object's key, an array's index, or null before the first of either. */
export type PathStep = string | number | null;

/** A path is for a person to find a field; a hostile key must not make the message long. */
const MAX_PATH_CHARS = 120;

const PLAIN_KEY = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
const NOT_PRINTABLE_ASCII = /[^\x20-\x7e]/g;

/**
 * The path as text that is safe in a log, a terminal and a prompt: `$.items[3]["a b"]`.
 * Keys that are not plain identifiers are JSON-escaped down to printable ASCII; the whole is at most 120 characters.
 *
 * @param root what the document is called: `$` for arguments, the caller's own word elsewhere.
 * @param steps outermost first; null steps are skipped.
 */
export function formatPath(root: string, steps: readonly PathStep[]): string {
  let path = escapeText(root.slice(0, MAX_PATH_CHARS));
  for (const step of steps) {
    if (step === null) continue;
    if (path.length > MAX_PATH_CHARS) break;
    path += formatStep(step);
  }
  return path.length > MAX_PATH_CHARS ? `${path.slice(0, MAX_PATH_CHARS - 3)}...` : path;
}

function formatStep(step: string | number): string {
  if (typeof step === 'number') return `[${step}]`;
  const key = step.slice(0, MAX_PATH_CHARS);
  return PLAIN_KEY.test(key) ? `.${key}` : `[${escapeText(JSON.stringify(key))}]`;
}

function escapeText(text: string): string {
  return text.replace(
    NOT_PRINTABLE_ASCII,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
