import { type ProcessRole, SteadyClient } from './database.ts';

/** How long after a lost or refused connection the next is tried. */
const RETRY_MS = 2_000;

/**
 * Listens to a channel on a connection of its own, which is opened again for ever when it is lost. What is told
 * meanwhile is missed: whoever listens looks for itself now and then, and after each (re)connection is called once.
 */
export function listen(options: {
  url: string;
  role: ProcessRole;
  channel: string;
  name: string;
  onNotification: () => void;
}): { close(): Promise<void> } {
  let closed = false;
  let timer: NodeJS.Timeout | undefined;
  let client: SteadyClient | null = null;
  const connect = async () => {
    const opened = new SteadyClient({
      connectionString: options.url,
      application_name: options.name,
      options: `-c role=${options.role}`,
      keepAlive: true,
      connectionTimeoutMillis: 10_000,
    });
    client = opened;
    opened.on('notification', options.onNotification);
    opened.once('end', retry);
    try {
      await opened.connect();
      await opened.query(`listen ${options.channel}`);
      options.onNotification();
    } catch {
      await opened.end().catch(() => undefined);
      retry();
    }
  };
  const retry = () => {
    clearTimeout(timer);
    if (!closed) {
      timer = setTimeout(() => void connect(), RETRY_MS);
    }
  };
  void connect();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      await client?.end().catch(() => undefined);
    },
  };
}
