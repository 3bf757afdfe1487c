import type { ApprovalCard, ApprovalSummary, Decided } from '../approvals/index.ts';
import { CountersignError, ERROR_CODES, type ErrorCode } from '../errors.ts';
import type { Explanation, Started } from '../runs/index.ts';

/** What the demo asks of the api over HTTP with a token, like every other program. */
export type ApiClient = {
  start(body: { workflow: string; input: string; key: string }): Promise<Started>;
  run(id: string): Promise<{ id: string; status: string; reason: string | null; output: unknown }>;
  explanation(runId: string): Promise<Explanation>;
  approvals(): Promise<ApprovalSummary[]>;
  approval(id: string): Promise<ApprovalCard>;
  decide(id: string, body: { verdict: 'approve' | 'reject'; fingerprint: string }): Promise<Decided>;
};

/** @throws the api's own refusals as CountersignError; fetch's TypeError when it cannot be reached. */
export function apiClient(url: string, token: string): ApiClient {
  const ask = async <T>(method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as T & { code?: string; message?: string };
    if (!response.ok) {
      const { code } = answer;
      throw new CountersignError(
        code !== undefined && code in ERROR_CODES ? (code as ErrorCode) : 'INTERNAL',
        `The api refused ${method} ${path.replace(/[0-9a-f-]{36}/g, ':id')}: ${answer.message ?? response.status}`,
      );
    }
    return answer;
  };
  const at = (id: string) => encodeURIComponent(id);
  return {
    start: (body) => ask('POST', '/v1/runs', body),
    run: (id) => ask('GET', `/v1/runs/${at(id)}`),
    explanation: (id) => ask('GET', `/v1/runs/${at(id)}/explanation`),
    approvals: async () => (await ask<{ approvals: ApprovalSummary[] }>('GET', '/v1/approvals')).approvals,
    approval: (id) => ask('GET', `/v1/approvals/${at(id)}`),
    decide: (id, body) => ask('POST', `/v1/approvals/${at(id)}/decisions`, body),
  };
}
