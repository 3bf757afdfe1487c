/**
 * Leases and holds: the right to work on a run.
 *
 * The hold (`held_until`, `epoch`, `holder` in Postgres) decides; the Redis lease advises, so that a duplicate
 * delivery costs no attempt. One batched heartbeat per worker renews all its holds. A worker trusts a hold only until
 * (its clock before the last heartbeat + ttl − margin), and stops starting things then, whatever Postgres would say.
 *
 * Invariant: I3. A crash leaves a hold that runs out by itself.
 */
export { type Hold, HoldKeeper } from './hold-keeper.ts';
