/** The child's side of child.ts. */
import type { AnswerMessage, CallMessage } from './child.ts';

export type Methods = { [method: string]: (parameters: never) => unknown };

/**
 * Answers the parent's calls until the channel closes (the parent asks to stop, or is dead), then runs `stop` and ends
 * the process. Ctrl-C reaches the whole process group; it is the parent's to handle.
 */
export function answerCalls(methods: Methods, stop: () => Promise<unknown> = async () => undefined): void {
  process.on('SIGINT', () => undefined);
  process.on('message', (message: CallMessage) => {
    void answer(methods, message).then((answered) => process.send?.(answered));
  });
  process.once('disconnect', () => {
    stop().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  });
}

/** Tells the parent something that it did not ask for. */
export function tellParent(news: unknown): void {
  if (process.connected) {
    process.send?.({ news });
  }
}

async function answer(methods: Methods, { call, method, parameters }: CallMessage): Promise<AnswerMessage> {
  const known = methods[method] as ((parameters: unknown) => unknown) | undefined;
  try {
    if (known === undefined) {
      throw new Error(`no method ${method}`);
    }
    return { call, result: await known(parameters) };
  } catch (error) {
    return { call, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}
