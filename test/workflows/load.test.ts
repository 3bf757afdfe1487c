import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = path.join(import.meta.dirname, '../..');
const api = pathToFileURL(path.join(root, 'dist/src/index.js')).href;
const sdk = pathToFileURL(path.join(root, 'node_modules/@openai/agents/dist/index.mjs')).href;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'countersign-load-'));
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

type Loaded = { names: string[] } | { code: string; message: string; details: Record<string, unknown> };

/** What a worker process of its own makes of the file: the test runner would read TypeScript by itself. */
async function load(file: string): Promise<Loaded> {
  const script = `
    import { loadWorkflows } from ${JSON.stringify(api)};
    const said = await loadWorkflows(process.argv[1]).then(
      (all) => ({ names: all.map(({ name, version }) => name + '@' + version) }),
      (error) => JSON.parse(JSON.stringify(error)));
    console.log(JSON.stringify(said));`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', script, '--', file],
    { cwd: folder },
  );
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Loaded;
}

const imports = `import { workflow, action, manual } from ${JSON.stringify(api)};\nimport { Agent } from ${JSON.stringify(sdk)};\n`;
const define = (name: string, version = '1') =>
  `workflow({ name: '${name}', version: '${version}', agent: () => new Agent({ name: 'a' }) })`;

async function write(name: string, body: string): Promise<string> {
  await writeFile(path.join(folder, name), body);
  return name;
}

describe('a workflows file', () => {
  it.each([
    ['a default export', 'one.mjs', `export default ${define('one')};`, ['one@1']],
    [
      'a default array',
      'many.mjs',
      `export default [${define('one')}, ${define('two', '7')}];`,
      ['one@1', 'two@7'],
    ],
    [
      'named exports beside other things',
      'named.mjs',
      `export const a = ${define('one')}; export const b = 7; export default () => 1;`,
      ['one@1'],
    ],
    [
      'one workflow exported twice',
      'twice.mjs',
      `const w = ${define('one')}; export { w, w as v, w as default };`,
      ['one@1'],
    ],
    [
      'TypeScript',
      'typed.ts',
      `const name: string = 'typed' satisfies string;\ntype Unused = { a: number };\nexport default ${define('typed')};\nexport const n = name as unknown;`,
      ['typed@1'],
    ],
    [
      'TypeScript that needs more than erasing',
      'enums.mts',
      `enum Colour { Red }\nexport const c = Colour.Red;\nexport default ${define('enums')};`,
      ['enums@1'],
    ],
  ])('with %s is loaded', async (_what, name, body, names) => {
    expect(await load(await write(name, imports + body))).toEqual({ names });
  });

  it('in TypeScript may import its neighbours, and shares one SDK and one package with the worker', async () => {
    await write('shared.ts', `${imports}export const made: unknown = ${define('shared')};`);
    const file = await write('main.ts', `import { made } from './shared.ts';\nexport default made;`);
    expect(await load(file)).toEqual({ names: ['shared@1'] });
  });

  it.each([
    ['that does not exist', 'nowhere.ts', null, 'does not exist'],
    ['that throws', 'throws.mjs', `throw new RangeError('no database')`, 'RangeError: no database'],
    ['that throws a value', 'value.mjs', `throw 7`, 'threw a value'],
    ['that does not parse', 'syntax.mjs', 'export default {', 'SyntaxError'],
    ['that does not parse as TypeScript', 'syntax.ts', 'export default {{', 'importing it threw'],
    ['that imports what is not there', 'missing.mjs', `import './not-here.mjs'`, 'not-here.mjs'],
    [
      'with no workflow',
      'none.mjs',
      `export const a = 1; export default { name: 'w', version: '1' };`,
      'export default workflow',
    ],
    ['with nothing', 'empty.mjs', '', 'export default workflow'],
  ])('%s is not loaded, and the message says what to look at', async (_what, name, body, hint) => {
    if (body !== null) await write(name, body);
    const said = await load(name);
    expect(said).toMatchObject({ code: 'WORKFLOWS_NOT_LOADED', details: { file: name } });
    expect('message' in said && said.message).toContain(hint);
  });

  it('in TypeScript of a CommonJS package is refused with what to rename, for it would bring its own SDK along', async () => {
    await mkdir(path.join(folder, 'cjs'));
    await writeFile(path.join(folder, 'cjs/package.json'), '{ "type": "commonjs" }');
    const body = `${imports}export default ${define('one')};`;
    const said = await load(await write('cjs/flows.ts', body));
    expect(said).toMatchObject({ code: 'WORKFLOWS_NOT_LOADED', details: { file: 'cjs/flows.ts' } });
    expect('message' in said && said.message).toContain('.mts');
    expect(await load(await write('cjs/flows.mts', body))).toEqual({ names: ['one@1'] });
  });

  it('that is a folder is not loaded', async () => {
    await mkdir(path.join(folder, 'folder.ts'));
    expect(await load('folder.ts')).toMatchObject({ code: 'WORKFLOWS_NOT_LOADED' });
  });

  it('with an invalid action keeps that action’s own error', async () => {
    const file = await write('invalid.mjs', `${imports}action({ name: 'pay' });`);
    expect(await load(file)).toMatchObject({ code: 'ACTION_INVALID', details: { action: 'pay' } });
  });
});
