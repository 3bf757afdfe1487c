/** The reconciler: settles unproven actions by evidence, and sweeps what should move and does not. */
import { workerKeys, workflowsFile } from '../src/config.ts';
import { runProcess, runReconciler } from '../src/processes/index.ts';
import { loadWorkflows } from '../src/workflows/index.ts';

await runProcess('reconciler', async (config, log) =>
  runReconciler({
    databaseUrl: config.databaseUrl,
    keys: workerKeys(config),
    workflows: await loadWorkflows(workflowsFile(config, process.argv[2])),
    patienceMs: config.patienceMs,
    log,
  }),
);
