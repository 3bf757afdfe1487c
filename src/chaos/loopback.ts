import { CountersignError } from '../errors.ts';

/** 127.0.0.0/8, ::1 and the name that stands for them. */
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i;

/**
 * Refuses to make trouble anywhere but on this machine. A tunnel that ends on this machine looks like it; so it may be
 * somebody's production all the same.
 *
 * @param urls by the name of the setting that they come from.
 * @throws CHAOS_REFUSED naming the setting, never the host's password.
 */
export function assertLoopback(urls: Readonly<Record<string, string | null>>): void {
  for (const [setting, url] of Object.entries(urls)) {
    const far = url === null ? undefined : hostsOf(url).find((host) => !isHere(host));
    if (far !== undefined) {
      throw new CountersignError(
        'CHAOS_REFUSED',
        `${setting} names ${far}, which is not this machine; with --not-loopback trouble is made there too.`,
        { details: { field: setting, host: far } },
      );
    }
  }
}

/** Every host that a driver may take out of the URL: a `host` parameter wins over the host itself, PGHOST over none. */
function hostsOf(url: string): string[] {
  const { protocol, hostname, searchParams } = new URL(url);
  const named = [hostname, ...searchParams.getAll('host'), ...searchParams.getAll('hostaddr')].filter(
    (host) => host !== '',
  );
  const usual = protocol.startsWith('postgres') ? process.env.PGHOST : undefined;
  return named.length > 0 || !usual ? named : [usual];
}

/** A path is a socket of this machine. */
function isHere(host: string): boolean {
  return LOOPBACK.test(host) || host.startsWith('/') || host.startsWith('%2F');
}
