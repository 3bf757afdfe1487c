/**
 * Dev and demo: the whole fleet on one machine, every process a real one.
 *
 *   servers (embedded Postgres, or DATABASE_URL and REDIS_URL) ─▶ migrate ─▶ provider, api, relay, workers, reconciler
 *
 * `dev` keeps the fleet running for a person to play with and starts again whatever dies; `demo` plays the main job on
 * a fleet of its own and checks that it had exactly one effect. Neither is used in production: there the same files of
 * `workers/` are run by whatever runs processes.
 *
 * What a crash here leaves: children notice the end of their stdin and stop by themselves. An embedded Postgres lives
 * on and is taken over by the next `dev` of the same home, or by nobody (demo) until the next `demo` clears it away.
 *
 * This folder alone reaches out of src/: to `examples/`, for the provider and the example workflows.
 */
export { runDemo } from './demo.ts';
export type { DemoReport } from './demo-story.ts';
export { runDev } from './dev.ts';
export { effectsAtProvider } from './provider-effects.ts';
