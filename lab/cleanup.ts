/** What a command has started, undone in reverse order, however the command ends: normally, by a throw, by Ctrl-C. */
export type Cleanup = {
  /** Registers how to undo something. Call it before the first await: an interrupt between the two would leak it. */
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
  let interrupted = false;
  const interrupt = (code: number) => (): void => {
    interrupted = true;
    // From here on things fail because they are being taken away; nothing of it may end the process before all is undone.
    process.on('unhandledRejection', () => undefined);
    process.on('uncaughtException', () => undefined);
    void undoAll().finally(() => process.exit(code));
  };
  const onInterrupt = interrupt(130);
  const onTerminate = interrupt(143);
  // `on`, not `once`: the OpenAI SDK exits the process by itself when it finds no other listener for a signal.
  process.on('SIGINT', onInterrupt);
  process.on('SIGTERM', onTerminate);
  try {
    return await work(cleanup);
  } finally {
    await undoAll();
    if (interrupted) {
      // What the work threw then is only that its servers went away; the process is about to end.
      await new Promise(() => undefined);
    }
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
