/**
 * Workflows: named, versioned agent factories. Loaded by workers and reconcilers only; the api never runs user code.
 *
 * A run is pinned to `(name, version)`. A worker announces what it has loaded, and the claim leaves alone what it
 * cannot carry (I7). Everything that could defeat exactly-once is refused here, before the first run.
 */
export { announcement, type Capabilities } from './capabilities.ts';
export { openContext } from './context.ts';
export { type Adapter, type RunIdentity, type Workflow, type WorkflowOptions, workflow } from './define.ts';
export { loadWorkflows } from './load.ts';
export { acceptsTool, buildRegistry, type RegisteredWorkflow, type Registry } from './registry.ts';
