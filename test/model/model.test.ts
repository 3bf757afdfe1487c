/** The model speaks of the code as it is, and its quick set holds. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { findChecker } from './checker.ts';

const root = path.join(import.meta.dirname, '../..');
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');
const ledger = read('model/ledger.pml');
const readme = read('model/README.md');

/** name → body, of the last definition of each SQL function. */
const sqlFunctions = new Map(
  readdirSync(path.join(root, 'migrations'))
    .filter((name) => /^\d+_.*\.sql$/.test(name))
    .sort()
    .flatMap((name) =>
      read(`migrations/${name}`)
        .replace(/--.*$/gm, '')
        .split(/(?=\bcreate (?:or replace )?function )/),
    )
    .map((text): [string, string] => [/^create (?:or replace )?function (\w+)/.exec(text)?.[1] ?? '', text])
    .filter(([name]) => name !== ''),
);

/** A step of the protocol changes a run, an action or an approval, or says whether one may change. */
const steps = [...sqlFunctions]
  .filter(([, text]) =>
    /\bupdate (runs|actions|approvals)\b|\binsert into (runs|actions|approvals)\b|\breturns boolean\b/.test(
      text,
    ),
  )
  .map(([name]) => name);

const modelled = [...ledger.matchAll(/^(?:inline|#define) (\w+)/gm)]
  .map((match) => match[1] ?? '')
  .filter((name) => new RegExp(`^inline ${name}\\b`, 'm').test(ledger) || sqlFunctions.has(name));

const section = (title: string) => readme.split(`\n## ${title}\n`)[1]?.split('\n## ')[0] ?? '';
const rows = (title: string) =>
  section(title)
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.split(' | '));
const leftOut = rows('What is not modelled').flatMap(([names = '']) =>
  [...names.matchAll(/`(\w+)`/g)].map((match) => match[1] ?? ''),
);

/** The table of check.sh: name and what is expected of it. */
const checks = [...read('model/check.sh').matchAll(/^[q-] (\S+) +(holds|P\d) +(?:safety|live)\b/gm)].map(
  (match) => ({ name: match[1] ?? '', expected: match[2] ?? '' }),
);

describe('the model', () => {
  it('names no SQL function that does not exist', () => {
    expect(modelled.filter((name) => !sqlFunctions.has(name))).toEqual([]);
    expect(leftOut.filter((name) => !sqlFunctions.has(name))).toEqual([]);
  });

  it('has every step of the protocol, or its README says why not', () => {
    expect(steps).toContain('intend_actions');
    expect(steps.filter((name) => !modelled.includes(name) && !leftOut.includes(name))).toEqual([]);
    expect(leftOut.filter((name) => modelled.includes(name))).toEqual([]);
  });

  it('is described by its README check by check', () => {
    const described = rows('Results').map(([name = '']) => name.replace(/[|` ]/g, ''));
    expect(described.sort()).toEqual(checks.map(({ name }) => name).sort());
  });

  it('names for each check that must fail the tests that guard it, and these exist', () => {
    const guards = rows('Which test guards what');
    expect(guards.map(([name = '']) => name.replace(/[|` ]/g, '')).sort()).toEqual(
      checks
        .filter(({ expected }) => expected !== 'holds')
        .map(({ name }) => name)
        .sort(),
    );
    const titles = guards.flatMap(([, tests = '']) => [
      ...tests.matchAll(/`(test\/[\w-]+)`: “(.+?)”(?= ·| \||$)/g),
    ]);
    const gone = titles.filter(([, folder = '', title = '']) => !textsOf(folder).includes(title));
    expect(titles.length).toBeGreaterThan(20);
    expect(gone.map(([named]) => named)).toEqual([]);
  });
});

function textsOf(folder: string): string {
  return readdirSync(path.join(root, folder))
    .filter((name) => name.endsWith('.ts'))
    .map((name) => read(`${folder}/${name}`))
    .join('\n');
}

const skipReason = await findChecker();

describe(skipReason ?? 'the model checker', () => {
  it.skipIf(skipReason !== null)(
    'finds the quick set as expected: the protocol holds, and each of its mutants is caught',
    async () => {
      const { code, output } = await checkQuick();
      const lines = output.split('\n').filter((line) => /^(ok|BAD) /.test(line));
      expect(lines.filter((line) => !line.startsWith('ok '))).toEqual([]);
      expect(lines.length).toBeGreaterThan(15);
      expect(code).toBe(0);
    },
    600_000,
  );
});

describe('a machine without the model checker', () => {
  afterEach(() => {
    vi.unstubAllEnvs();
  });

  it('skips the checks with a reason that names what to install', async () => {
    vi.stubEnv('PATH', '');
    vi.stubEnv('CI', '');
    expect(await findChecker()).toContain('apt-get install spin gcc');
  });

  it('fails in CI instead of skipping', async () => {
    vi.stubEnv('PATH', '');
    vi.stubEnv('CI', 'true');
    await expect(findChecker()).rejects.toThrow('CI=true forbids skipping');
  });

  it('tells whoever runs the checks by hand what to install', async () => {
    const { code, output } = await checkQuick({ PATH: '/nowhere' });
    expect(code).toBe(3);
    expect(output).toContain('apt-get install spin gcc');
  });
});

/** In a process group of its own, which a timeout of the test ends as a whole. */
async function checkQuick(env: NodeJS.ProcessEnv = {}): Promise<{ code: number | null; output: string }> {
  const child = spawn('/bin/sh', [path.join(root, 'model/check.sh'), 'quick'], {
    env: { ...process.env, ...env },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const end = (): void => {
    if (child.pid !== undefined && child.exitCode === null) {
      process.kill(-child.pid, 'SIGTERM');
    }
  };
  process.once('exit', end);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  process.off('exit', end);
  return { code, output };
}
