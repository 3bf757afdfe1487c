import { type CipherKey, createCipheriv, createDecipheriv } from 'node:crypto';
import { TAG_BYTES } from './layout.ts';

const ALGORITHM = 'aes-256-gcm';
const OPTIONS = { authTagLength: TAG_BYTES } as const;

/**
 * AES-256-GCM encryption (NIST SP 800-38D). A text is encoded as UTF-8 on the way, without a copy on our side.
 *
 * @param key 32 bytes. @param nonce 12 bytes, never used twice with one key.
 * @returns the ciphertext, as long as the plaintext, and the 16-byte tag.
 */
export function gcmEncrypt(
  key: CipherKey,
  nonce: Uint8Array,
  additionalData: Uint8Array,
  plaintext: string | Uint8Array,
): { ciphertext: Buffer; tag: Buffer } {
  const cipher = createCipheriv(ALGORITHM, key, nonce, OPTIONS);
  cipher.setAAD(additionalData);
  const ciphertext =
    typeof plaintext === 'string' ? cipher.update(plaintext, 'utf8') : cipher.update(plaintext);
  // GCM is a stream mode: final() yields no bytes, it only completes the tag.
  cipher.final();
  return { ciphertext, tag: cipher.getAuthTag() };
}

/**
 * AES-256-GCM decryption.
 *
 * @returns the plaintext, or undefined unless the 16-byte tag matches key, nonce, additional data and ciphertext.
 */
export function gcmDecrypt(
  key: CipherKey,
  nonce: Uint8Array,
  additionalData: Uint8Array,
  ciphertext: Uint8Array,
  tag: Uint8Array,
): Buffer | undefined {
  const decipher = createDecipheriv(ALGORITHM, key, nonce, OPTIONS);
  decipher.setAAD(additionalData);
  decipher.setAuthTag(tag);
  const plaintext = decipher.update(ciphertext);
  try {
    decipher.final();
  } catch {
    // Not yet authenticated bytes must not outlive the refusal.
    plaintext.fill(0);
    return undefined;
  }
  return plaintext;
}
