/**
 * The command line: every process of the fleet, every question and every decision, from a terminal or a script.
 *
 *   main ─▶ program ─▶ commands/ ─▶ one function of a noun ─▶ output (a sentence, or exactly one JSON value)
 *
 * It holds no rule of its own. Commands that work on the fleet's database take on the role `countersign_api` and the
 * review key; `worker` and `reconciler` are the same functions that `workers/` runs. Results go to stdout, everything
 * else to stderr; text that came from outside is printed with its invisible characters written out, so that it can
 * neither move the cursor nor reorder what a reviewer reads.
 *
 * A crash here leaves what Postgres has; repeating a command is safe, a start when it is given --key.
 */
export { runCli } from './program.ts';
