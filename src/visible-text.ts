/** A text as it may be shown to a person who decides by it. */
export type Visible = {
  /** Every invisible, reordering or control character written out as `\u{202e}`. */
  text: string;
  /** The characters that were written out, once each, as `U+202E`; empty for ordinary text. */
  hidden: string[];
};

/**
 * What a reader does not see, or sees in another place than it is: controls, format characters (bidi overrides and
 * isolates, zero-width ones, the soft hyphen, tags), line and paragraph separators, and everything that fonts leave
 * out. An emoji sequence is matched first, so that its joiners stay.
 */
const HIDDEN =
  /\p{Extended_Pictographic}\uFE0F?\p{Emoji_Modifier}?(?:\u200D\p{Extended_Pictographic}\uFE0F?\p{Emoji_Modifier}?)*|[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** One line of text: line breaks are written out as well, so that a value cannot draw lines of its own. */
export function visibleText(text: string): Visible {
  const hidden = new Set<string>();
  return { text: writeOut(text, hidden), hidden: [...hidden] };
}

/** A text of several lines, each safe to print. */
export function visibleLines(text: string): string {
  return text
    .split('\n')
    .map((line) => visibleText(line).text)
    .join('\n');
}

/**
 * A JSON value over several lines, two spaces of indent. Written for the eye: the usual `\n` and `\t` are plain JSON,
 * everything else that is hidden is written out and reported.
 */
export function visibleJson(value: unknown): Visible {
  const hidden = new Set<string>();
  return { text: writeValue(value, '', hidden), hidden: [...hidden] };
}

function writeOut(text: string, hidden: Set<string>): string {
  return text.replace(HIDDEN, (match) => {
    if (/^\p{Extended_Pictographic}/u.test(match)) {
      return match;
    }
    const code = (match.codePointAt(0) ?? 0).toString(16);
    hidden.add(`U+${code.toUpperCase().padStart(4, '0')}`);
    return `\\u{${code}}`;
  });
}

function writeValue(value: unknown, indent: string, hidden: Set<string>): string {
  const inner = `${indent}  `;
  if (typeof value === 'string') {
    return writeString(value, hidden);
  }
  if (Array.isArray(value)) {
    const items = value.map((item) => `${inner}${writeValue(item, inner, hidden)}`);
    return items.length === 0 ? '[]' : `[\n${items.join(',\n')}\n${indent}]`;
  }
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value).map(
      ([key, field]) => `${inner}${writeString(key, hidden)}: ${writeValue(field, inner, hidden)}`,
    );
    return fields.length === 0 ? '{}' : `{\n${fields.join(',\n')}\n${indent}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** A backslash of the value's own is doubled, so that nobody can write the escape of a character that is not there. */
function writeString(text: string, hidden: Set<string>): string {
  const usual = text.split(/([\\"\n\t])/).map((part) => {
    switch (part) {
      case '\\':
        return '\\\\';
      case '"':
        return '\\"';
      case '\n':
        return '\\n';
      case '\t':
        return '\\t';
      default:
        return writeOut(part, hidden);
    }
  });
  return `"${usual.join('')}"`;
}
