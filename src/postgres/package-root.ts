import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The folder that holds package.json and migrations/: the same whether this file runs from src/ or dist/src/.
 */
export function packageRoot(): string {
  let folder = path.dirname(fileURLToPath(import.meta.url));
  while (!existsSync(path.join(folder, 'migrations', '0001_tables.sql'))) {
    const parent = path.dirname(folder);
    if (parent === folder) {
      throw new Error('the migrations folder is missing from this installation');
    }
    folder = parent;
  }
  return folder;
}
