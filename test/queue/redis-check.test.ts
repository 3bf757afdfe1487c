import { describe, expect, it } from 'vitest';
import { assertUsable } from '../../src/queue/redis.ts';

const info = (version: string, policy: string) =>
  `# Server\r\nredis_version:${version}\r\n# Memory\r\nmaxmemory_policy:${policy}\r\n`;

describe('the Redis that a process starts with', () => {
  it.each(['6.2.0', '7.0.15', '8.0.1', '10.1.0'])('may be %s', (version) => {
    expect(() => assertUsable(info(version, 'noeviction'))).not.toThrow();
  });

  it.each([
    ['5.0.14', { version: '5.0.14' }],
    ['6.0.9', { version: '6.0.9' }],
  ])('may not be %s, and is told so by version', (version, details) => {
    expect(() => assertUsable(info(version, 'noeviction'))).toThrow(
      expect.objectContaining({ code: 'REDIS_MISCONFIGURED', details }),
    );
  });

  it('may not evict keys', () => {
    expect(() => assertUsable(info('7.0.15', 'allkeys-lru'))).toThrow(
      expect.objectContaining({ code: 'REDIS_MISCONFIGURED', details: { policy: 'allkeys-lru' } }),
    );
  });

  it('is given the benefit of the doubt where a service hides its settings', () => {
    expect(() => assertUsable('# Server\r\n')).not.toThrow();
  });
});
