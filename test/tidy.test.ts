import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../src/errors.ts';

const root = path.join(import.meta.dirname, '..');

/** Tracked and new files, as git sees them. */
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: root,
  encoding: 'utf8',
})
  .split('\n')
  .filter((name) => name !== '');
const sources = files.filter((name) => /^(src|workers|lab|bench|examples)\/.*\.ts$/.test(name));
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');

type Import = { from: string; to: string };

function importsOf(name: string): Import[] {
  return [
    ...read(name).matchAll(/(?:^|\n)\s*(?:import|export)[^;'"]*?from '([^']+)'|import\('([^']+)'\)/g),
  ].map((match) => ({
    from: name,
    to: match[1] ?? match[2] ?? '',
  }));
}

const imports = sources.flatMap(importsOf);
const folderOf = (name: string) =>
  /^src\/([^/]+)\//.exec(name)?.[1] ??
  (name.startsWith('src/') ? path.basename(name, '.ts') : (name.split('/')[0] ?? ''));
const target = ({ from, to }: Import) => path.normalize(path.join(path.dirname(from), to));

describe('the source is tidy', () => {
  it('each foreign edge has exactly one importer', () => {
    const owners: Record<string, string> = {
      pg: 'postgres',
      bullmq: 'queue',
      ioredis: 'queue',
      '@openai/agents': 'agents-sdk',
    };
    const strays = imports
      .filter(({ from }) => from.startsWith('src/'))
      .filter(({ from, to }) => owners[to] !== undefined && owners[to] !== folderOf(from))
      .map(({ from, to }) => `${from} imports ${to}`);
    expect(strays).toEqual([]);
  });

  it('folders are entered by their index, never by a deep import', () => {
    const deep = imports
      .filter(({ from, to }) => from.startsWith('src/') && to.startsWith('.'))
      .filter((edge) => {
        const into = target(edge);
        return (
          folderOf(into) !== folderOf(edge.from) && into.split('/').length > 2 && !into.endsWith('/index.ts')
        );
      })
      .map((edge) => `${edge.from} imports ${edge.to}`);
    expect(deep).toEqual([]);
  });

  it('dependencies point one way, with no cycle between folders', () => {
    const graph = new Map<string, Set<string>>();
    for (const edge of imports.filter(({ from, to }) => from.startsWith('src/') && to.startsWith('.'))) {
      const [from, to] = [folderOf(edge.from), folderOf(target(edge))];
      if (from !== to && from !== 'index') {
        graph.set(from, (graph.get(from) ?? new Set()).add(to));
      }
    }
    const cycles: string[] = [];
    const visit = (node: string, trail: string[]): void => {
      if (trail.includes(node)) {
        cycles.push([...trail.slice(trail.indexOf(node)), node].join(' → '));
        return;
      }
      for (const next of graph.get(node) ?? []) {
        visit(next, [...trail, node]);
      }
    };
    for (const node of graph.keys()) {
      visit(node, []);
    }
    expect([...new Set(cycles)]).toEqual([]);
  });

  it('no file is long, and no folder is a drawer for odds and ends', () => {
    const long = files.filter(
      (name) =>
        /\.(ts|sql)$/.test(name) && !name.startsWith('migrations/') && read(name).split('\n').length > 400,
    );
    expect(long).toEqual([]);
    expect(files.filter((name) => /(^|\/)(utils?|helpers?|common|misc|lib)(\/|\.)/.test(name))).toEqual([]);
  });

  it('every folder of src opens with where it stands in the flow', () => {
    const folders = readdirSync(path.join(root, 'src'), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    const silent = folders.filter(({ name }) => !read(`src/${name}/index.ts`).startsWith('/**'));
    expect(silent.map(({ name }) => name)).toEqual([]);
  });

  it('the README’s flow table names exactly the folders of src', () => {
    const folders = readdirSync(path.join(root, 'src'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
    const named = [...read('README.md').matchAll(/^\| `src\/([a-z-]+)\/?` \|/gm)].map((match) => match[1]);
    expect([...named].sort()).toEqual([...folders].sort());
  });

  it('every error code is documented, and every documented code exists', () => {
    const documented = [...read('ERRORS.md').matchAll(/^\| `([A-Z_]+)` \|/gm)].map((match) => match[1]);
    expect([...documented].sort()).toEqual(Object.keys(ERROR_CODES).sort());
  });

  it('every error code is thrown or stored somewhere', () => {
    const all = [...sources, ...files.filter((name) => name.startsWith('migrations/'))]
      .filter((name) => name !== 'src/errors.ts')
      .map(read)
      .join('\n');
    expect(Object.keys(ERROR_CODES).filter((code) => !all.includes(`'${code}'`))).toEqual([]);
  });

  it('SQL takes its time from the clock after the lock, and a fence is a locked row', () => {
    const sql = files.filter((name) => name.endsWith('.sql') && name !== 'migrations/schema.sql');
    const code = (name: string) => read(name).replace(/--.*$/gm, '');
    expect(sql.filter((name) => /\bnow\s*\(\)|current_timestamp/i.test(code(name)))).toEqual([]);
    const functions = sql.flatMap((name) =>
      code(name)
        .split(/(?=create (?:or replace )?function )/)
        .filter((text) => text.startsWith('create')),
    );
    const unfenced = functions
      .filter(
        (text) =>
          /p_epoch|\.epoch is distinct from/.test(text) &&
          !/for no key update|for share|for update/i.test(text),
      )
      .map((text) => /function (\w+)/.exec(text)?.[1]);
    expect(unfenced).toEqual([]);
    const strays = sources.filter(
      (name) =>
        name.startsWith('src/') && /\bnow\(\)/.test(read(name).replace(/(Date|performance)\.now\(\)/g, '')),
    );
    expect(strays).toEqual([]);
  });

  it('no test is skipped, focused or left for later, and no type is waved through', () => {
    const all = files.filter((name) => name.endsWith('.ts') && name !== 'test/tidy.test.ts');
    const waved = all.filter((name) =>
      /\b(it|test|describe)\.(only|todo)\b|@ts-(ignore|nocheck|expect-error)|\bas any\b/.test(read(name)),
    );
    expect(waved).toEqual([]);
  });

  it('test titles are unique within a file', () => {
    const twice = files
      .filter((name) => name.endsWith('.test.ts'))
      .flatMap((name) => {
        const titles = [...read(name).matchAll(/\bit(?:\.each\([^)]*\))?\('([^']+)'/g)].map(
          (match) => match[1],
        );
        return titles
          .filter((title, index) => titles.indexOf(title) !== index)
          .map((title) => `${name}: ${title}`);
      });
    expect(twice).toEqual([]);
  });
});
