/** What is printed, and what bench/README.md keeps of the last full run. */
import { readFile, writeFile } from 'node:fs/promises';
import { cpus, loadavg, totalmem } from 'node:os';
import path from 'node:path';
import { packageRoot } from '../src/postgres/index.ts';
import type { BenchOptions } from './options.ts';
import type { Backend } from './round.ts';
import type { Servers } from './servers.ts';
import type { BackendReport, SideReport } from './summary.ts';

export type Report = {
  date: string;
  machine: { cpu: string; cores: number; memory_gb: number; platform: string; load_before: number };
  versions: Record<string, string>;
  settings: { runs: number; concurrency: number; rounds: number; decisions_per_round: number };
} & { [backend in Backend]: BackendReport | null };

const PACKAGES = ['@openai/agents', 'bullmq', 'ioredis', 'pg'];
const BEGIN = '<!-- the last full run, written by npm run bench: do not edit -->';
const END = '<!-- end of the last full run -->';

export async function describe(options: BenchOptions, servers: Servers): Promise<Omit<Report, Backend>> {
  const processors = cpus();
  const versions: Record<string, string> = {
    node: process.versions.node,
    postgres: servers.versions.postgres,
  };
  if (servers.versions.redis !== null) {
    versions.redis = servers.versions.redis;
  }
  for (const name of PACKAGES) {
    versions[name] = await versionOf(name);
  }
  return {
    date: new Date().toISOString(),
    machine: {
      cpu: processors[0]?.model.trim() || 'unknown',
      cores: processors.length,
      memory_gb: Math.round(totalmem() / 2 ** 30),
      platform: `${process.platform} ${process.arch}`,
      load_before: Math.round((loadavg()[0] ?? 0) * 10) / 10,
    },
    versions,
    settings: {
      runs: options.runs,
      concurrency: options.concurrency,
      rounds: options.rounds,
      decisions_per_round: options.decisions,
    },
  };
}

async function versionOf(name: string): Promise<string> {
  const file = path.join(packageRoot(), 'node_modules', name, 'package.json');
  const { version } = JSON.parse(await readFile(file, 'utf8')) as { version: string };
  return version;
}

/** One Markdown table per backend: it reads as well in a terminal. */
export function asTables(report: Report): string {
  const { machine, settings, versions } = report;
  const head = [
    `${report.date.slice(0, 10)}, ${machine.cores} cores (${machine.cpu}), ${machine.memory_gb} GB, ${machine.platform}; load average ${machine.load_before} before.`,
    `${Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', ')}.`,
    `Medians of ${settings.rounds} alternating rounds; ${settings.runs} runs a round, concurrency ${settings.concurrency} per process.`,
  ].join('\n');
  const sections = (['redis', 'embedded'] as const).flatMap((backend) => {
    const of = report[backend];
    return of === null ? [] : [backendTable(backend, of)];
  });
  return [head, ...sections].join('\n\n');
}

type Row = { name: string; read: (side: SideReport) => number | null; ratio: number | null; aim: string };

function backendTable(backend: Backend, report: BackendReport): string {
  const rows: Row[] = [
    {
      name: 'resumes/s, 1 worker process',
      read: (s) => s.resumes_per_second_1,
      ratio: report.throughput_ratio_1,
      aim: '≥ 0.8',
    },
    {
      name: 'resumes/s, 2 worker processes',
      read: (s) => s.resumes_per_second_2,
      ratio: report.throughput_ratio_2,
      aim: '≥ 0.8',
    },
    {
      name: 'CPU s per 1,000, 1 worker',
      read: (s) => s.cpu_1?.total ?? null,
      ratio: report.cpu_ratio,
      aim: '≤ 1.25',
    },
    { name: '· worker', read: (s) => s.cpu_1?.workers ?? null, ratio: null, aim: '' },
    { name: '· relay / producer', read: (s) => s.cpu_1?.publisher ?? null, ratio: null, aim: '' },
    { name: '· Postgres', read: (s) => s.cpu_1?.postgres ?? null, ratio: null, aim: '' },
    { name: '· Redis', read: (s) => s.cpu_1?.redis ?? null, ratio: null, aim: '' },
    {
      name: 'CPU s per 1,000, 2 workers',
      read: (s) => s.cpu_2?.total ?? null,
      ratio: report.cpu_ratio_2,
      aim: '',
    },
    { name: 'decision to effect, p50 ms', read: (s) => s.p50_ms, ratio: report.p50_ratio, aim: '≤ 2' },
    { name: 'decision to effect, p99 ms', read: (s) => s.p99_ms, ratio: report.p99_ratio, aim: '' },
    { name: 'state, characters', read: (s) => s.state_chars, ratio: null, aim: '' },
  ];
  const cells = rows.map(({ name, read, ratio, aim }) => [
    name,
    number(read(report.safe)),
    number(read(report.unsafe)),
    number(ratio),
    aim,
  ]);
  const { runs, once } = report.effects;
  const title = backend === 'redis' ? 'BullMQ on Redis' : 'BullMQ on Postgres (the embedded default)';
  return `### ${title}\n\n${markdown([['', 'Countersign', 'unsafe', 'ratio', 'aim'], ...cells])}\n\nEffects: ${once} of ${runs} runs had exactly one.`;
}

function number(value: number | null): string {
  return value === null ? '' : value.toFixed(value >= 100 ? 0 : 2);
}

function markdown(table: string[][]): string {
  const widths = (table[0] ?? []).map((_, column) =>
    Math.max(3, ...table.map((row) => (row[column] ?? '').length)),
  );
  const line = (row: string[]) =>
    `| ${row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0))).join(' | ')} |`;
  const rule = `|${widths.map((width, column) => (column === 0 ? `${'-'.repeat(width + 2)}` : `${'-'.repeat(width + 1)}:`)).join('|')}|`;
  const [head = [], ...rows] = table;
  return [line(head), rule, ...rows.map(line)].join('\n');
}

/** Replaces what is between the markers; the rest of the page is written by hand. */
export async function keepInReadme(report: Report): Promise<void> {
  const file = path.join(packageRoot(), 'bench', 'README.md');
  const page = await readFile(file, 'utf8');
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) {
    throw new Error(`${file} has lost its markers`);
  }
  await writeFile(file, `${page.slice(0, begin)}${BEGIN}\n\n${asTables(report)}\n\n${page.slice(end)}`);
}
