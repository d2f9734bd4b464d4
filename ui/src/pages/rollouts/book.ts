// The rows of one query, loaded by leaves of 200 as they come into sight.

import { address, get, type Query, reasonOf } from "../../api/client";
import type { RolloutPage, RolloutRow } from "../../api/types";

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
  readonly #leaves = new Map<number, RolloutRow[] | "coming">();

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
  #loadAgain(isOther: boolean): void {
    if (isOther) {
      this.#leaves.clear();
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#load(0), AGAIN_MS);
  }

  async #load(leaf: number): Promise<void> {
    const path = address("/api/rollouts", { ...this.#query, offset: leaf * LEAF, limit: LEAF });
    try {
      const page = await get<RolloutPage>(path, {}, this.#controller.signal);
      if (page.partial || page.reading) {
        this.#loadAgain(page.total !== this.page?.total);
      }
      this.#leaves.set(leaf, page.rows);
      [this.page, this.problem] = [page, ""];
    } catch (error) {
      if (this.#controller.signal.aborted) {
        return;
      }
      this.#leaves.delete(leaf);
      this.problem = reasonOf(error);
    }
    this.revision += 1;
    this.#changed();
  }
}
