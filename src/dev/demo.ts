export type DemoReport = { runId: string };
export async function runDemo(options: {
  settings: unknown;
  narrate: (line: string) => void;
  note: (name: string, line: string) => void;
}): Promise<DemoReport> {
  options.narrate('x');
  return { runId: '' };
}
