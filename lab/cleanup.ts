/** What a command has started, undone in reverse order, however the command ends: normally, by a throw, by Ctrl-C. */
export type Cleanup = {
  /** Registers how to undo something that exists from now on. */
  defer(undo: () => unknown): void;
  /** Runs `work` with a cleanup of its own, done when the work is, or with this one if that comes first. */
  scope<T>(work: (inner: Cleanup) => Promise<T>): Promise<T>;
};

/**
 * Runs a whole command and undoes what it deferred. SIGINT and SIGTERM undo it too, and end the process with
 * 128 + signal. Once per process: inside, use `scope`.
 *
 * @param work may throw; its error is thrown on after the cleanup.
 */
export async function withCleanup<T>(work: (cleanup: Cleanup) => Promise<T>): Promise<T> {
  const { cleanup, undoAll } = createCleanup();
  const interrupted = (code: number) => (): void => {
    void undoAll().finally(() => process.exit(code));
  };
  const onInterrupt = interrupted(130);
  const onTerminate = interrupted(143);
  process.once('SIGINT', onInterrupt);
  process.once('SIGTERM', onTerminate);
  try {
    return await work(cleanup);
  } finally {
    await undoAll();
    process.off('SIGINT', onInterrupt);
    process.off('SIGTERM', onTerminate);
  }
}

function createCleanup(): { cleanup: Cleanup; undoAll: () => Promise<void> } {
  const undos: (() => unknown)[] = [];
  let running: Promise<void> | null = null;
  const undoEach = async (): Promise<void> => {
    // One failing undo does not keep the others from running.
    for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) {
      try {
        await undo();
      } catch (error) {
        process.stderr.write(`cleanup: ${error instanceof Error ? error.message : String(error)}\n`);
      }
    }
  };
  const undoAll = (): Promise<void> => {
    running ??= undoEach().finally(() => {
      running = null;
    });
    return running;
  };
  const cleanup: Cleanup = {
    defer: (undo) => {
      undos.push(undo);
    },
    async scope(work) {
      const inner = createCleanup();
      undos.push(inner.undoAll);
      try {
        return await work(inner.cleanup);
      } finally {
        await inner.undoAll();
      }
    },
  };
  return { cleanup, undoAll };
}
