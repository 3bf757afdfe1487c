/** A small typed client on the global fetch. A lost connection stays fetch's own TypeError: nothing is known. */
import type { Counts, Effect, FaultRequest, LogEntry, LogEvent, Lookup, WaitFilter } from './types.ts';

/** The service answered, and the answer was no (any status of 400 and above). */
export class ReleaseServiceError extends Error {
  override readonly name = 'ReleaseServiceError';
  readonly status: number;
  /** The body's `code`, or `http_<status>` when it has none. */
  readonly code: string;
  readonly body: unknown;

  constructor(status: number, body: unknown) {
    const fields = typeof body === 'object' && body !== null ? body : {};
    const code = 'code' in fields && typeof fields.code === 'string' ? fields.code : `http_${status}`;
    const message = 'message' in fields && typeof fields.message === 'string' ? fields.message : code;
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

export type CreateOptions = { idempotencyKey?: string | undefined; signal?: AbortSignal | undefined };
export type AskOptions = { signal?: AbortSignal | undefined };

export type ReleaseClient = {
  readonly url: string;
  /** Asks for an effect; the receipt comes back, the first one when the key was used before. */
  create(kind: string, body: Readonly<Record<string, unknown>>, options?: CreateOptions): Promise<Effect>;
  find(kind: string, key: string, options?: AskOptions): Promise<Lookup>;
  /** By a top-level body field whose value is a string, number or boolean. */
  findBy(
    kind: string,
    field: string,
    value: string | number | boolean,
    options?: AskOptions,
  ): Promise<Lookup>;
  counts(): Promise<Counts>;
  log(): Promise<LogEntry[]>;
  fault(request: FaultRequest): Promise<void>;
  /** The faults not used up yet. */
  faults(): Promise<FaultRequest[]>;
  clearFaults(): Promise<void>;
  setMode(kind: string, mode: { dedupe: boolean }): Promise<void>;
  holdGate(gate: string): Promise<void>;
  /** Resolves with the number of calls let go. */
  openGate(gate: string): Promise<number>;
  /**
   * Resolves with the count once at least `count` (default 1) such events were logged since the last reset;
   * rejects with code `wait_timeout` after `timeoutMs` (default 5 s). Give `kind` or `key`, not both.
   */
  waitFor(event: LogEvent, options?: WaitFilter & { count?: number; timeoutMs?: number }): Promise<number>;
  reset(): Promise<void>;
};

type Ask = {
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
};

export function releaseClient(url: string): ReleaseClient {
  const get = <T>(path: string, options: AskOptions = {}): Promise<T> =>
    ask<T>(url, { method: 'GET', path, ...options });
  const tell = async (method: string, path: string, body?: unknown): Promise<void> => {
    await ask(url, { method, path, ...(body === undefined ? {} : { body }) });
  };
  return {
    url,
    create: (kind, body, { idempotencyKey, signal } = {}) =>
      ask<Effect>(url, {
        method: 'POST',
        path: `/effects/${encodeURIComponent(kind)}`,
        body,
        headers: idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey },
        signal,
      }),
    find: (kind, key, options) =>
      get<Lookup>(`/effects/${encodeURIComponent(kind)}?${new URLSearchParams({ key })}`, options),
    findBy: (kind, field, value, options) => {
      const query = new URLSearchParams({ natural: `${field}:${value}` });
      return get<Lookup>(`/effects/${encodeURIComponent(kind)}?${query}`, options);
    },
    counts: () => get<Counts>('/counts'),
    log: () => get<LogEntry[]>('/log'),
    fault: (request) => tell('POST', '/faults', request),
    faults: () => get<FaultRequest[]>('/faults'),
    clearFaults: () => tell('DELETE', '/faults'),
    setMode: (kind, mode) => tell('PUT', `/modes/${encodeURIComponent(kind)}`, mode),
    holdGate: (gate) => tell('POST', `/gates/${encodeURIComponent(gate)}/hold`),
    openGate: async (gate) => {
      const path = `/gates/${encodeURIComponent(gate)}`;
      return (await ask<{ released: number }>(url, { method: 'DELETE', path })).released;
    },
    waitFor: async (event, options = {}) => {
      const query = new URLSearchParams({ event });
      for (const [name, value] of Object.entries(options)) query.set(name, String(value));
      return (await get<{ count: number }>(`/wait?${query}`)).count;
    },
    reset: () => tell('POST', '/reset'),
  };
}

async function ask<T>(url: string, { method, path, body, headers, signal }: Ask): Promise<T> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  });
  const answer: unknown = await response.json();
  if (!response.ok) throw new ReleaseServiceError(response.status, answer);
  return answer as T;
}
