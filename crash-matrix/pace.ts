/** Every deadline of a lane, short enough that each of them passes within a schedule. All in milliseconds. */
export type Pace = {
  /** Of a worker's hold. */
  ttlMs: number;
  sendWithinMs: number;
  callTimeoutMs: number;
  settlesWithinMs: number;
  reconcileMs: number;
  sweepMs: number;
  patienceMs: number;
  relayIdleMs: number;
  /** How long an outbox row stays with a relay that has died, an action with a reconciler that has died. */
  claimMs: number;
  /** How long BullMQ waits for a silent consumer. */
  lockMs: number;
  /** First wait before a failed segment is run again. */
  retryDelayMs: number;
  /** How often the driver looks. */
  stepMs: number;
  /** How long a client waits for the api before it asks again. */
  clientMs: number;
  /** How late a delayed answer comes: past every deadline of its caller. */
  delayMs: number;
  /** The same for publishing, whose own deadline is 5 s. */
  publishDelayMs: number;
  /** How long a frozen process stays frozen: past every deadline of the rest of the fleet. */
  frozenMs: number;
  /** What a process that was frozen or delayed is given to do what it still means to do. */
  quietMs: number;
  /** By then a run must have recovered, without any command. */
  boundMs: number;
};

/** @param factor 1 on an idle machine; more where other work competes for the cores. */
export function paceOf(factor: number): Pace {
  const scaled = (ms: number) => Math.round(ms * factor);
  return {
    ttlMs: scaled(600),
    sendWithinMs: scaled(200),
    callTimeoutMs: scaled(400),
    settlesWithinMs: scaled(100),
    reconcileMs: scaled(100),
    sweepMs: scaled(100),
    patienceMs: scaled(300),
    relayIdleMs: scaled(40),
    claimMs: scaled(1_000),
    lockMs: scaled(1_500),
    retryDelayMs: scaled(50),
    stepMs: scaled(30),
    clientMs: scaled(1_000),
    delayMs: scaled(1_500),
    publishDelayMs: 5_500,
    frozenMs: scaled(2_500),
    quietMs: scaled(300),
    boundMs: scaled(20_000),
  };
}
