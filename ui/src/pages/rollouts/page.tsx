import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { address } from "../../api/client";
import type { RolloutPage } from "../../api/types";
import { count, plural } from "../../format";
import { Empty, Loading, Problem } from "../../parts/basics";
import { onSteps } from "../../state/live";
import { route } from "../../state/route";
import { Book } from "./book";
import { Filters, queryOf } from "./filters";
import { RolloutList } from "./list";

/** The book of a query; the old one is shown until the first leaf of the new one is here. */
function useBook(query: string, again: number): { book: Book; shown: Book } {
  const [, draw] = useState(0);
  const before = useRef<Book | null>(null);
  const book = useMemo(
    () => new Book(Object.fromEntries(new URLSearchParams(query)), () => draw((old) => old + 1)),
    [query, again],
  );
  useEffect(() => () => book.close(), [book]);
  const shown = book.page === null && book.problem === "" ? (before.current ?? book) : book;
  before.current = shown;
  return { book, shown };
}

export function RolloutsPage() {
  const { params } = route.value;
  const query = address("", queryOf(params)).slice(1);
  const [again, setAgain] = useState(0);
  const [newSteps, setNewSteps] = useState(0);
  const { book, shown } = useBook(query, again);
  useEffect(() => onSteps((rows) => setNewSteps((old) => old + rows.length)), []);
  const page = shown.page;
  const reload = () => {
    setNewSteps(0);
    setAgain((old) => old + 1);
  };
  return (
    <section class="page-fill" aria-labelledby="rollouts-title">
      <div class="page-head">
        <h2 id="rollouts-title">Rollouts</h2>
        <span class="muted" role="status">
          {page && `${plural(page.total, "rollout")}${page.partial || page.reading ? ", still reading" : ""}`}
        </span>
        {newSteps > 0 && (
          <button type="button" class="quiet-accent" onClick={reload}>
            {count(newSteps)} more {newSteps === 1 ? "step" : "steps"}: show
          </button>
        )}
      </div>
      <Filters params={params} known={{ finish: page?.finish_reasons ?? [], replica: page?.replicas ?? [] }} />
      {book.problem && <Problem words={book.problem} again={reload} />}
      {page?.damaged.length ? <Damaged page={page} /> : null}
      {page === null && !book.problem && <Loading what="rollouts" />}
      {page?.total === 0 && !page.partial && (
        <Empty title="No rollouts">
          None fits the filters. A step's rollouts appear here as soon as it is trained.
        </Empty>
      )}
      {page !== null && page.total > 0 && (
        <RolloutList
          book={shown}
          revision={shown.revision}
          total={page.total}
          query={`${query}#${again}`}
          params={params}
        />
      )}
    </section>
  );
}

function Damaged({ page }: { page: RolloutPage }) {
  const steps = page.damaged.map((one) => one.step).join(", ");
  return <p class="reason">The rollouts of these steps cannot be read and are left out: {steps}</p>;
}
