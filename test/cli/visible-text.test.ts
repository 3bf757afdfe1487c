import { describe, expect, it } from 'vitest';
import { visibleJson, visibleText } from '../../src/visible-text.ts';

describe('text that a person decides by', () => {
  it.each([
    ['\u202eabc\u2066', '\\u{202e}abc\\u{2066}', ['U+202E', 'U+2066']],
    ['a\u200bb\ufeffc\u00add', 'a\\u{200b}b\\u{feff}c\\u{ad}d', ['U+200B', 'U+FEFF', 'U+00AD']],
    ['a\u2028b', 'a\\u{2028}b', ['U+2028']],
    ['\u001b[2J', '\\u{1b}[2J', ['U+001B']],
    ['one\ntwo\r', 'one\\u{a}two\\u{d}', ['U+000A', 'U+000D']],
    ['\u{e0041}', '\\u{e0041}', ['U+E0041']],
    ['\u3164', '\\u{3164}', ['U+3164']],
    ['\ud800', '\\u{d800}', ['U+D800']],
  ])('shows what does not show, and reports it: %j', (text, shown, hidden) => {
    expect(visibleText(text)).toEqual({ text: shown, hidden });
  });

  it.each(['مرحبا بالعالم', 'שלום', 'Grüße, Žluťoučký', '日本語', '👩‍🚀 ❤️ 👍🏽', 'naïve – “quoted”'])(
    'leaves ordinary text as it is: %s',
    (text) => {
      expect(visibleText(text)).toEqual({ text, hidden: [] });
    },
  );

  it('shows JSON with its structure, and every hidden character of its keys and values', () => {
    const shown = visibleJson({
      'k\u200bey': ['v\u202e', 1, null, true],
      line: 'a\nb\t"c"',
      empty: [{}, []],
    });
    expect(shown.hidden).toEqual(['U+200B', 'U+202E']);
    expect(shown.text).toBe(
      [
        '{',
        '  "k\\u{200b}ey": [',
        '    "v\\u{202e}",',
        '    1,',
        '    null,',
        '    true',
        '  ],',
        '  "line": "a\\nb\\t\\"c\\"",',
        '  "empty": [',
        '    {},',
        '    []',
        '  ]',
        '}',
      ].join('\n'),
    );
  });

  it('tells an escape that somebody typed from a character that is there', () => {
    expect(visibleJson('\\u{202e}')).toEqual({ text: '"\\\\u{202e}"', hidden: [] });
    expect(visibleJson('\u202e')).toEqual({ text: '"\\u{202e}"', hidden: ['U+202E'] });
  });
});
