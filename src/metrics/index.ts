/**
 * Metrics: the fleet in numbers, read from Postgres at each scrape, because Postgres alone knows them: a process that
 * counted for itself would forget when it is killed.
 *
 * Invariants: I11, I12. The numbers are the whole fleet's, so they are for whoever runs it, and no label says more than
 * a status, a class or a kind. A crash here costs one scrape.
 */
export { METRICS, metricsPage } from './page.ts';
