/** Everything a call can be made to wait for: a gate, which a test opens, or a delay. */

type Gate = { held: boolean; waiting: Set<() => void> };

export type Holds = { gates: Map<string, Gate>; delays: Set<() => void> };

export function createHolds(): Holds {
  return { gates: new Map(), delays: new Set() };
}

/** Closes a gate. Calls that reach it from now on wait. */
export function holdGate(holds: Holds, name: string): void {
  const gate = holds.gates.get(name);
  if (gate) gate.held = true;
  else holds.gates.set(name, { held: true, waiting: new Set() });
}

/** Opens a gate and lets go of everyone before it. Returns how many; opening an open gate is harmless. */
export function openGate(holds: Holds, name: string): number {
  const gate = holds.gates.get(name);
  if (!gate) return 0;
  gate.held = false;
  const waiting = [...gate.waiting];
  gate.waiting.clear();
  for (const letGo of waiting) letGo();
  return waiting.length;
}

export function isHeld(holds: Holds, name: string): boolean {
  return holds.gates.get(name)?.held === true;
}

/** Waits until the gate is opened; returns at once when it is open. */
export function passGate(holds: Holds, name: string): Promise<void> {
  const gate = holds.gates.get(name);
  if (!gate?.held) return Promise.resolve();
  return new Promise((resolve) => gate.waiting.add(resolve));
}

export function delay(holds: Holds, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const letGo = (): void => {
      clearTimeout(timer);
      holds.delays.delete(letGo);
      resolve();
    };
    const timer = setTimeout(letGo, ms);
    holds.delays.add(letGo);
  });
}

/** Lets go of every waiting call at once, for a reset or a shutdown; the callers see that their world ended. */
export function endHolds(holds: Holds): void {
  for (const name of holds.gates.keys()) openGate(holds, name);
  for (const letGo of [...holds.delays]) letGo();
}
