import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { CountersignError } from '../errors.ts';
import type { Workflow } from './define.ts';

/**
 * Imports a workflows file (.js, .mjs, .ts, .mts): a default or named export that is a workflow or an array of them.
 * TypeScript is read by tsx, registered only when the file needs it, so that the file and this package share one
 * instance of every module.
 *
 * @throws WORKFLOWS_NOT_LOADED naming the file and what was wrong with it. Errors of `workflow()` and `action()` pass.
 */
export async function loadWorkflows(file: string): Promise<Workflow[]> {
  const resolved = path.resolve(file);
  if (!existsSync(resolved)) {
    throw notLoaded(file, 'the file does not exist');
  }
  if (/\.tsx?$/.test(resolved) && !isEsModule(resolved)) {
    throw notLoaded(
      file,
      'TypeScript of a CommonJS package would load a second copy of the SDK; name the file .mts, or put "type": "module" in its package.json',
    );
  }
  if (/\.m?tsx?$/.test(resolved)) {
    const { register } = await import('tsx/esm/api');
    register();
  }
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(resolved).href)) as Record<string, unknown>;
  } catch (error) {
    if (error instanceof CountersignError) {
      throw error;
    }
    throw notLoaded(
      file,
      `importing it threw ${error instanceof Error ? `${error.constructor.name}: ${error.message}` : 'a value'}`,
      error,
    );
  }
  const found = Object.values(module).flat().filter(isWorkflow);
  const workflows = [...new Set(found)];
  if (workflows.length === 0) {
    throw notLoaded(file, 'it exports no workflow; end it with "export default workflow({ … })"');
  }
  return workflows;
}

/** By the nearest package.json, as Node decides it. */
function isEsModule(file: string): boolean {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const manifest = path.join(folder, 'package.json');
    if (existsSync(manifest)) {
      return /"type"\s*:\s*"module"/.test(readFileSync(manifest, 'utf8'));
    }
    if (folder === path.dirname(folder)) {
      return false;
    }
  }
}

function isWorkflow(value: unknown): value is Workflow {
  return (
    typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'countersign.workflow'
  );
}

function notLoaded(file: string, why: string, cause?: unknown): CountersignError {
  return new CountersignError('WORKFLOWS_NOT_LOADED', `Workflows file ${file} was not loaded: ${why}.`, {
    details: { file },
    ...(cause === undefined ? {} : { cause }),
  });
}
