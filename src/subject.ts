import { CountersignError } from './errors.ts';

/**
 * Whoever decides, judges, asks or replays is named: the name is part of the record.
 *
 * @param what is said in the error: "A decision", "A judgement".
 * @throws SUBJECT_MISSING
 */
export function assertSubject(subject: unknown, what: string): void {
  if (
    typeof subject !== 'string' ||
    subject.length === 0 ||
    subject.length > 512 ||
    subject.includes('\u0000')
  ) {
    throw new CountersignError(
      'SUBJECT_MISSING',
      `${what} needs the name of the person behind it (1 to 512 characters, without NUL).`,
      { details: { field: 'subject' } },
    );
  }
}
