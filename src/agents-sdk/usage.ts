/** What model calls cost, as numbers that are stored and summed. */
export type UsageNumbers = {
  requests: number;
  inputTokens: number;
  outputTokens: number;
  totalTokens: number;
};

export function addUsage(before: Partial<UsageNumbers>, more: UsageNumbers): UsageNumbers {
  return {
    requests: (before.requests ?? 0) + more.requests,
    inputTokens: (before.inputTokens ?? 0) + more.inputTokens,
    outputTokens: (before.outputTokens ?? 0) + more.outputTokens,
    totalTokens: (before.totalTokens ?? 0) + more.totalTokens,
  };
}

export const NO_USAGE: UsageNumbers = { requests: 0, inputTokens: 0, outputTokens: 0, totalTokens: 0 };

/** A request whose cost nobody told us. */
export const ONE_REQUEST: UsageNumbers = { requests: 1, inputTokens: 0, outputTokens: 0, totalTokens: 0 };
