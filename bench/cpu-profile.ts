/** Sums a .cpuprofile's self times by package and by function. */
import { readFile } from 'node:fs/promises';

type Node = { id: number; callFrame: { functionName: string; url: string; lineNumber: number } };
type Profile = { nodes: Node[]; samples: number[]; timeDeltas: number[] };

export type Share = { name: string; ms: number };

export async function summariseProfile(file: string): Promise<{ packages: Share[]; functions: Share[] }> {
  const { nodes, samples, timeDeltas } = JSON.parse(await readFile(file, 'utf8')) as Profile;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const packages = new Map<string, number>();
  const functions = new Map<string, number>();
  samples.forEach((id, index) => {
    const node = byId.get(id);
    const ms = (timeDeltas[index] ?? 0) / 1_000;
    if (node === undefined || node.callFrame.functionName === '(idle)') {
      return;
    }
    const owner = packageOf(node);
    packages.set(owner, (packages.get(owner) ?? 0) + ms);
    const name = `${owner}: ${node.callFrame.functionName || '(anonymous)'} ${placeOf(node)}`;
    functions.set(name, (functions.get(name) ?? 0) + ms);
  });
  return { packages: sorted(packages), functions: sorted(functions) };
}

function packageOf({ callFrame: { functionName, url } }: Node): string {
  if (functionName.startsWith('(')) {
    return functionName;
  }
  const inModules = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1];
  if (inModules !== undefined) {
    return inModules;
  }
  if (url.startsWith('node:')) {
    return url.replace(/^node:internal\//, 'node:').split('/')[0] ?? url;
  }
  const own = /\/dist\/(src|bench|lab)\/([^/]+)/.exec(url);
  return own === null ? 'native' : `${own[1]}/${own[2]}`;
}

function placeOf({ callFrame: { url, lineNumber } }: Node): string {
  return url === '' ? '' : `${url.split('/').slice(-2).join('/')}:${lineNumber + 1}`;
}

function sorted(sums: ReadonlyMap<string, number>): Share[] {
  return [...sums].map(([name, ms]) => ({ name, ms })).sort((a, b) => b.ms - a.ms);
}
