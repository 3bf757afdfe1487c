import type { Command } from 'commander';
import { visibleText } from '../visible-text.ts';

/** What a command has to say: the object for a program, the text for a person. One of them is printed. */
export type Shown = { json: unknown; text: string };

export type Globals = { json: boolean; tenant: string | null };

/** Global options count wherever they were written, before or after the command. */
export function globalsOf(command: Command): Globals {
  const { json, tenant } = command.optsWithGlobals<{ json?: boolean; tenant?: string }>();
  return { json: json === true, tenant: tenant ?? null };
}

/** Prints one result on stdout: exactly one JSON value with --json. */
export function print(command: Command, shown: Shown): void {
  const { json } = globalsOf(command);
  process.stdout.write(`${json ? JSON.stringify(shown.json) : shown.text.trimEnd()}\n`);
}

/** Columns as wide as their widest cell; a heading above. Cells are data, so they cannot move the cursor. */
export function table(headings: readonly string[], rows: readonly (readonly unknown[])[]): string {
  const cells = [headings, ...rows].map((row) => row.map(cell));
  const widths = headings.map((_, column) =>
    Math.max(...cells.map((row) => [...(row[column] ?? '')].length)),
  );
  const pad = (text: string, column: number) =>
    text + ' '.repeat(Math.max(0, (widths[column] ?? 0) - [...text].length));
  return cells.map((row) => row.map(pad).join('  ').trimEnd()).join('\n');
}

/** `label  value` lines, the labels padded to one width; null and undefined values are left out. */
export function facts(pairs: readonly (readonly [label: string, value: unknown])[]): string {
  const present = pairs
    .filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([label, value]) => [cell(label), value] as const);
  const width = Math.max(0, ...present.map(([label]) => label.length));
  return present
    .map(([label, value]) => {
      const lines = value instanceof Lines ? value.lines : [cell(value)];
      return `  ${label.padEnd(width)}  ${lines.join(`\n  ${' '.repeat(width)}  `)}`;
    })
    .join('\n');
}

/** Several lines that are safe to print as they are, as one value of `facts`. */
export class Lines {
  readonly lines: readonly string[];
  constructor(text: string) {
    this.lines = text.split('\n');
  }
}

function cell(value: unknown): string {
  if (value === null || value === undefined) {
    return '-';
  }
  return visibleText(value instanceof Date ? moment(value) : String(value)).text;
}

/** `2026-11-29 18:22:50Z`: seconds are enough for a person, and UTC for everybody. */
export function moment(date: Date): string {
  return date
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, 'Z');
}

/** `in 23 h 59 min`, `in 40 s`, `3 min ago`. */
export function fromNow(date: Date, now = Date.now()): string {
  const seconds = Math.round((date.getTime() - now) / 1_000);
  const abs = Math.abs(seconds);
  const text =
    abs < 60
      ? `${abs} s`
      : abs < 3_600
        ? `${Math.floor(abs / 60)} min`
        : abs < 172_800
          ? `${Math.floor(abs / 3_600)} h ${Math.floor((abs % 3_600) / 60)} min`
          : `${Math.floor(abs / 86_400)} days`;
  return seconds >= 0 ? `in ${text}` : `${text} ago`;
}
