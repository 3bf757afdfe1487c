/** What a fleet's queue, and the leases beside it, are called unless somebody names them. */
export const DEFAULT_QUEUE = 'countersign';
