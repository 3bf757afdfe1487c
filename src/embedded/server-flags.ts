/** The settings every server of this folder runs with. Given on the command line, so each start decides. */

export type ServerFlags = { durable: boolean; port?: number };

const FIXED: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  // No socket file: their paths are limited to 107 bytes and their folder may not exist.
  unix_socket_directories: '',
  // An API, a console, a relay and a few workers with a pool each outgrow the default of 100.
  max_connections: '200',
  log_destination: 'stderr',
  logging_collector: 'off',
  log_line_prefix: '%m [%p] ',
  // Errors without DETAIL: that line quotes rows, and no row belongs in a log file.
  log_error_verbosity: 'terse',
  timezone: 'UTC',
  log_timezone: 'UTC',
};

/** Gives up every guarantee against power loss; kill -9 of the server still loses nothing. */
const NOT_DURABLE: Readonly<Record<string, string>> = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
};

export function serverArgs({ durable, port }: ServerFlags): string[] {
  const settings = {
    ...FIXED,
    ...(durable ? {} : NOT_DURABLE),
    ...(port === undefined ? {} : { port: String(port) }),
  };
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}
