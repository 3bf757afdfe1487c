/** What a command has started, undone in reverse order, however the command ends: normally, by a throw, by Ctrl-C. */
export type Cleanup = {
  /** Registers how to undo something that exists from now on. */
  defer(undo: () => unknown): void;
  /** Undoes everything, last first. One failing undo does not keep the others from running. Safe to call twice. */
  run(): Promise<void>;
};

/**
 * Runs `work` and undoes what it deferred. SIGINT and SIGTERM undo it too, and end the process with 128 + signal.
 *
 * @param work may throw; its error is thrown on after the cleanup.
 */
export async function withCleanup<T>(work: (cleanup: Cleanup) => Promise<T>): Promise<T> {
  const cleanup = createCleanup();
  const interrupted = (code: number) => (): void => {
    void cleanup.run().finally(() => process.exit(code));
  };
  const onInterrupt = interrupted(130);
  const onTerminate = interrupted(143);
  process.once('SIGINT', onInterrupt);
  process.once('SIGTERM', onTerminate);
  try {
    return await work(cleanup);
  } finally {
    await cleanup.run();
    process.off('SIGINT', onInterrupt);
    process.off('SIGTERM', onTerminate);
  }
}

function createCleanup(): Cleanup {
  const undos: (() => unknown)[] = [];
  let running: Promise<void> | null = null;
  const undoAll = async (): Promise<void> => {
    for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) {
      try {
        await undo();
      } catch (error) {
        process.stderr.write(`cleanup: ${error instanceof Error ? error.message : String(error)}\n`);
      }
    }
  };
  return {
    defer: (undo) => {
      undos.push(undo);
    },
    run: () => {
      running ??= undoAll().finally(() => {
        running = null;
      });
      return running;
    },
  };
}
