/** The api: programs start runs here, reviewers decide. Holds the review key only and loads no workflow code. */
import { requiredTokens, reviewKeys } from '../src/config.ts';
import { runApi } from '../src/http/index.ts';
import { runProcess } from '../src/processes/index.ts';

/** Where clients look when PORT says nothing else. */
const PORT = 7300;

await runProcess('api', async (config, log) =>
  runApi({
    databaseUrl: config.databaseUrl,
    keys: reviewKeys(config),
    tokens: requiredTokens(config),
    host: config.host,
    port: config.port ?? PORT,
    log,
  }),
);
