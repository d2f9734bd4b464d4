// The rows of one query, loaded by leaves of 200 as they come into sight.

import { address, get, type Query, reasonOf } from "../../api/client";
import type { RolloutPage, RolloutRow } from "../../api/types";
import { status } from "../../state/live";

export const LEAF = 200;
const AGAIN_MS = 700;

export class Book {
  /** Of the answer that came last; null = none has come. */
  page: RolloutPage | null = null;
  problem = "";
  /** Counts the changes of what rows there are. */
  revision = 0;
  readonly #query: Query;
  readonly #changed: () => void;
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #leaves = new Map<number, RolloutRow[] | "coming" | "failed">();
  /** Counts the lists: a leaf of an older one is none of this. */
  #list = 0;
  /** Later steps are of another book: in between, their rows would shift all others. */
  #lastStep: number | undefined;

  /** `changed` is called whenever something new can be shown. */
  constructor(query: Query, changed: () => void) {
    [this.#query, this.#changed] = [query, changed];
    this.need(0, 0);
  }

  row(at: number): RolloutRow | undefined {
    const leaf = this.#leaves.get(Math.floor(at / LEAF));
    return Array.isArray(leaf) ? leaf[at % LEAF] : undefined;
  }

  /** Sees to it that rows `first` to `last` are here, or come. */
  need(first: number, last: number): void {
    for (let leaf = Math.floor(first / LEAF); leaf <= Math.floor(last / LEAF); leaf += 1) {
      if (!this.#leaves.has(leaf)) {
        this.#leaves.set(leaf, "coming");
        void this.#load(leaf);
      }
    }
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  /** While the service is still reading, what it has found so far is shown and asked for anew. */
  #loadAgain(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#load(0), AGAIN_MS);
  }

  #path(leaf: number): string {
    const last = this.#lastStep;
    const wanted = Number(this.#query.step_to ?? Infinity);
    const bound = last === undefined || !(wanted > last) ? {} : { step_to: last };
    return address("/api/rollouts", { ...this.#query, ...bound, offset: leaf * LEAF, limit: LEAF });
  }

  async #load(leaf: number): Promise<void> {
    const list = this.#list;
    try {
      const page = await get<RolloutPage>(this.#path(leaf), {}, this.#controller.signal);
      if (list !== this.#list) {
        return;
      }
      this.#take(leaf, page);
    } catch (error) {
      if (this.#controller.signal.aborted || list !== this.#list) {
        return;
      }
      this.#leaves.set(leaf, "failed");
      this.problem = reasonOf(error);
    }
    this.revision += 1;
    this.#changed();
  }

  #take(leaf: number, page: RolloutPage): void {
    if (this.page !== null && this.page.total !== page.total) {
      this.#list += 1;
      this.#leaves.clear();
    }
    this.#lastStep ??= Math.max(status.peek()?.step ?? 0, ...page.rows.map((row) => row.step)) || undefined;
    // The service answers again: what has failed may be asked for.
    this.#leaves.forEach((rows, at) => rows === "failed" && this.#leaves.delete(at));
    this.#leaves.set(leaf, page.rows);
    [this.page, this.problem] = [page, ""];
    if (page.partial || page.reading) {
      this.#lastStep = undefined;
      this.#loadAgain();
    }
  }
}
