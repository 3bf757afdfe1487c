/** A lane's fleet: one process of each role, and one more that is loaded and takes whatever role falls vacant. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cleanup } from '../lab/cleanup.ts';
import { type Member, startMember } from './member.ts';
import { type Place, ROLES, type Role } from './role-process.ts';

export class Fleet {
  readonly #cleanup: Cleanup;
  readonly #files: { module: URL; dir: string };
  readonly #place: Place;
  #members: Member[] = [];
  #spare: Member | null = null;

  /** @param files the role process's module, and a folder for traces. */
  constructor(cleanup: Cleanup, files: { module: URL; dir: string }, place: Place) {
    this.#cleanup = cleanup;
    this.#files = files;
    this.#place = place;
  }

  /** The living members of a role, oldest first. */
  all(role: Role): Member[] {
    return this.#members.filter((member) => member.alive && member.role === role);
  }

  /** @throws when nobody plays the role. */
  one(role: Role): Member {
    const [member] = this.all(role);
    if (member === undefined) {
      throw new Error(`no ${role} is alive`);
    }
    return member;
  }

  /** Members that ended although nobody killed them. */
  crashed(): Member[] {
    return this.#members.filter((member) => !member.alive && !member.doomed);
  }

  /** One process more in the role: the spare, if it is still there. */
  async add(role: Role): Promise<Member> {
    const member = this.#takeSpare();
    await member.play(role, this.#place);
    return member;
  }

  /** A member gives its role up and stays loaded; `occupy` gives it one again. */
  async vacate(role: Role): Promise<Member> {
    const member = this.one(role);
    await member.rest();
    return member;
  }

  /** Takes a role on, again and again if the start fails, as a supervisor would have it. Ends when it dies over it. */
  async occupy(member: Member, role: Role): Promise<void> {
    while (member.alive) {
      const playing = await member.play(role, this.#place).then(
        () => true,
        () => false,
      );
      if (playing) {
        return;
      }
      await sleep(this.#place.pace.stepMs);
    }
  }

  /** One process more in the role, whatever goes wrong with its start. */
  async recruit(role: Role): Promise<void> {
    await this.occupy(this.#takeSpare(), role);
  }

  /** One living member of each role, and a spare: what a schedule begins with. */
  async restore(): Promise<void> {
    const idle = this.#members.filter((member) => member.alive && member.role === null);
    await Promise.all(idle.map((member) => member.stop()));
    this.#members = this.#members.filter((member) => member.alive);
    await Promise.all(ROLES.map((role) => this.#restoreRole(role)));
    this.#members = this.#members.filter((member) => member.alive && member.role !== null);
    this.#spare = this.#spare?.alive ? this.#spare : startMember(this.#cleanup, this.#files);
  }

  async #restoreRole(role: Role): Promise<void> {
    const [first, ...more] = this.all(role);
    if (first === undefined) {
      await this.add(role);
    }
    for (const member of more) {
      await member.rest();
      if (this.#spare?.alive) {
        await member.stop();
      } else {
        this.#spare = member;
      }
    }
  }

  #takeSpare(): Member {
    const member = this.#spare?.alive ? this.#spare : startMember(this.#cleanup, this.#files);
    this.#members.push(member);
    this.#spare = null;
    return member;
  }

  /** Ends every process, at once. */
  async kill(): Promise<void> {
    const all = [...this.#members, ...(this.#spare === null ? [] : [this.#spare])];
    for (const member of all) {
      member.doomed = true;
      member.signal('SIGCONT');
      member.signal('SIGKILL');
    }
    await Promise.all(all.map((member) => member.ended));
    this.#members = [];
    this.#spare = null;
  }
}
