/** Reads what callers send. Anything unexpected is refused with a code, never guessed at. */
import { RequestRefused } from './http.ts';
import type { Fault, FaultRequest, JsonObject, JsonValue, LogEvent } from './types.ts';
import { LOG_EVENTS } from './types.ts';

const MAX_DELAY_MS = 600_000;
const MAX_WAIT_MS = 120_000;
const MAX_COUNT = 10_000_000;
/** As long as the longest key common providers take. */
const MAX_KEY_LENGTH = 255;
/** Bodies are compared and written recursively; deeper ones are no release, refund or e-mail. */
const MAX_BODY_DEPTH = 32;

export function readKind(kind: string | undefined): string {
  if (kind !== undefined && kind.length <= 64 && /^[a-z-]+$/.test(kind)) return kind;
  throw new RequestRefused(400, 'kind_invalid', 'a kind is 1 to 64 letters a-z and dashes');
}

export function readGate(name: string | undefined): string {
  if (name !== undefined && /^[a-z0-9_-]{1,64}$/.test(name)) return name;
  throw new RequestRefused(400, 'gate_invalid', 'a gate name is 1 to 64 of a-z, 0-9, dash, underscore');
}

/** A key is required where the provider dedupes. */
export function readKey(
  header: string | string[] | undefined,
  options: { required: boolean },
): string | null {
  if (header === undefined && !options.required) return null;
  if (typeof header !== 'string' || header === '') {
    throw new RequestRefused(400, 'key_missing', 'send the header Idempotency-Key');
  }
  if (header.length > MAX_KEY_LENGTH) {
    throw new RequestRefused(400, 'key_invalid', `a key has at most ${MAX_KEY_LENGTH} characters`);
  }
  return header;
}

export function readObject(value: JsonValue): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RequestRefused(400, 'body_not_object', 'the body must be a JSON object');
  }
  if (!depthWithin(value, MAX_BODY_DEPTH)) {
    throw new RequestRefused(400, 'body_too_deep', `the body nests deeper than ${MAX_BODY_DEPTH} levels`);
  }
  return value;
}

export function readMode(value: JsonValue): { dedupe: boolean } {
  const { dedupe, ...rest } = readObject(value);
  refuseUnknown(rest);
  if (typeof dedupe !== 'boolean') throw new RequestRefused(400, 'mode_invalid', 'dedupe: true or false');
  return { dedupe };
}

export function readFaultRequest(value: JsonValue): FaultRequest {
  const { kind, next, fault, ...rest } = readObject(value);
  refuseUnknown(rest);
  if (kind !== undefined && typeof kind !== 'string') throw faultInvalid('kind is a string');
  return {
    ...(kind === undefined ? {} : { kind: readKind(kind) }),
    ...(next === undefined ? {} : { next: readInteger(next, 'next', 0, MAX_COUNT) }),
    fault: readFault(fault),
  };
}

function readFault(value: JsonValue | undefined): Fault {
  if (value === undefined) throw faultInvalid('fault is missing');
  const { type, ...fields } = readObject(value);
  switch (type) {
    case 'delay_answer':
    case 'delay_commit':
    case 'lag_lookup': {
      const { ms, ...rest } = fields;
      refuseUnknown(rest);
      return { type, ms: readInteger(ms, 'ms', 0, MAX_DELAY_MS) };
    }
    case 'commit_then_drop':
    case 'drop':
    case 'wrong_answer':
    case 'forget_keys':
      refuseUnknown(fields);
      return { type };
    case 'refuse': {
      const { status, body, ...rest } = fields;
      refuseUnknown(rest);
      return {
        type,
        status: readInteger(status, 'status', 400, 599),
        ...(body === undefined ? {} : { body }),
      };
    }
    case 'wait_for_gate': {
      const { gate, when, ...rest } = fields;
      refuseUnknown(rest);
      if (when !== 'before_commit' && when !== 'after_commit') {
        throw faultInvalid('when: before_commit or after_commit');
      }
      return { type, gate: readGate(typeof gate === 'string' ? gate : undefined), when };
    }
    default:
      throw faultInvalid('unknown fault type');
  }
}

export function readWait(query: URLSearchParams): {
  event: LogEvent;
  count: number;
  timeoutMs: number;
  kind?: string;
  key?: string;
} {
  const event = LOG_EVENTS.find((known) => known === query.get('event'));
  if (!event) throw new RequestRefused(400, 'event_invalid', `event: one of ${LOG_EVENTS.join(', ')}`);
  const kind = query.get('kind');
  const key = query.get('key');
  if (kind !== null && key !== null) {
    throw new RequestRefused(400, 'filter_invalid', 'give kind or key, not both');
  }
  return {
    event,
    count: readInteger(Number(query.get('count') ?? 1), 'count', 1, MAX_COUNT),
    timeoutMs: readInteger(Number(query.get('timeoutMs') ?? 5_000), 'timeoutMs', 0, MAX_WAIT_MS),
    ...(kind === null ? {} : { kind: readKind(kind) }),
    ...(key === null ? {} : { key }),
  };
}

/** A look-up names a key or one body field, exactly one of them. */
export function readLookup(query: URLSearchParams): { key: string } | { natural: string } {
  const key = query.get('key');
  const natural = query.get('natural');
  if (key !== null && natural === null && key !== '') return { key };
  if (natural !== null && key === null && natural.indexOf(':') > 0) return { natural };
  throw new RequestRefused(400, 'lookup_invalid', 'give either key=K or natural=field:value');
}

function readInteger(value: JsonValue | undefined, name: string, min: number, max: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
  throw new RequestRefused(400, 'number_invalid', `${name} is a whole number from ${min} to ${max}`);
}

function refuseUnknown(rest: JsonObject): void {
  const names = Object.keys(rest);
  if (names.length > 0) throw new RequestRefused(400, 'field_unknown', `unknown: ${names.join(', ')}`);
}

function faultInvalid(message: string): RequestRefused {
  return new RequestRefused(400, 'fault_invalid', message);
}

function depthWithin(value: JsonValue, limit: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return limit > 0 && Object.values(value).every((inner) => depthWithin(inner, limit - 1));
}
