export async function explain(): Promise<never> {
  throw new Error('x');
}
export type Explanation = never;
