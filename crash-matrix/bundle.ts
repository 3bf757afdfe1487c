/**
 * Thousands of processes are killed here, so each must be cheap to start. The role process is bundled into one file and
 * started from V8's code cache: 0.2 instead of 1 s of one core. What runs in it is what `tsc` has built, unchanged.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import type { Cleanup } from '../lab/cleanup.ts';
import { packageRoot } from '../src/postgres/index.ts';

/** Loads the bundle with its code cache; the first process that has loaded it writes the cache for the others. */
const LAUNCHER = `
const { existsSync, readFileSync, renameSync, writeFileSync } = require('node:fs');
const { createRequire } = require('node:module');
const vm = require('node:vm');
const file = __dirname + '/bundle.cjs';
const cacheFile = __dirname + '/cache-' + process.version;
const cachedData = existsSync(cacheFile) ? readFileSync(cacheFile) : undefined;
const script = new vm.Script('(function (exports, require, module) {' + readFileSync(file, 'utf8') + '\\n})', {
  filename: file,
  cachedData,
  importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
});
const module_ = { exports: {} };
script.runInThisContext()(module_.exports, createRequire(ROOT), module_);
if (cachedData === undefined) {
  writeFileSync(cacheFile + '.' + process.pid, script.createCachedData());
  renameSync(cacheFile + '.' + process.pid, cacheFile);
}
`;

/** Builds it anew, for the code as it is built now. Returns the module to start. */
export async function bundleRoleProcess(cleanup: Cleanup): Promise<URL> {
  const dir = await mkdtemp(join(tmpdir(), `countersign-bundle-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const entry = join(packageRoot(), 'dist/crash-matrix/role-process.js');
  await build({
    entryPoints: [entry],
    outfile: join(dir, 'bundle.cjs'),
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: 'node20',
    logLevel: 'error',
    external: ['pg-native', 'tsx', 'tsx/*', 'pino-pretty'],
    // The package's own files are found from where this code was built.
    define: { 'import.meta.url': JSON.stringify(pathToFileURL(entry).href) },
  });
  const launcher = join(dir, 'launch.cjs');
  await writeFile(launcher, LAUNCHER.replace('ROOT', JSON.stringify(entry)));
  return pathToFileURL(launcher);
}
