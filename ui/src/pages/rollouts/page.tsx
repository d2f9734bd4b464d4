import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { address, download, reasonOf } from "../../api/client";
import type { RolloutPage } from "../../api/types";
import { count, plural } from "../../format";
import { Empty, Loading, Problem, Segmented } from "../../parts/basics";
import { hasEnded, onSteps } from "../../state/live";
import { route, setParams } from "../../state/route";
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

const ORDERS = [
  { value: "-step", label: "Newest" },
  { value: "-reward", label: "Best" },
  { value: "reward", label: "Worst" },
  { value: "random", label: "Random" },
];
const FOLDERS = [
  { value: "training", label: "Training" },
  { value: "evaluations", label: "Evaluations" },
];
const FORMATS = ["csv", "jsonl"];
const MOST_SAVED = 20_000; // The service gives no more.

export function RolloutsPage() {
  const { params } = route.value;
  const query = address("", queryOf(params)).slice(1);
  const [again, setAgain] = useState(0);
  const [newSteps, setNewSteps] = useState(0);
  const { book, shown } = useBook(query, again);
  useEffect(() => onSteps((rows) => setNewSteps((old) => old + rows.length)), []);
  const page = shown.page;
  const [saving, setSaving] = useState("");
  const save = (format: string) =>
    download(address("/api/rollouts/export", { ...queryOf(params), format }), `rollouts.${format}`).then(
      () => setSaving(""),
      (error: unknown) => setSaving(reasonOf(error)),
    );
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
        <Segmented
          label="Of"
          value={params.of ?? "training"}
          choices={FOLDERS}
          onChoose={(of) => setParams({ of, set: "", replica: "" })}
        />
        <Segmented label="Order" value={params.sort ?? "-step"} choices={ORDERS} onChoose={(sort) => setParams({ sort })} />
        {FORMATS.map((format) => (
          <button
            key={format}
            type="button"
            class="small"
            title={`Save ${(page?.total ?? 0) > MOST_SAVED ? "the first 20,000" : "all"} as ${format.toUpperCase()}`}
            disabled={!page?.total}
            onClick={() => void save(format)}
          >
            {format.toUpperCase()}
          </button>
        ))}
        {newSteps > 0 && (
          <button type="button" class="quiet-accent" onClick={reload}>
            {count(newSteps)} more {newSteps === 1 ? "step" : "steps"}: show
          </button>
        )}
      </div>
      <Filters params={params} known={{ finish: page?.finish_reasons ?? [], replica: page?.replicas ?? [], set: page?.sets ?? [], component: page?.components ?? [] }} />
      {saving && <Problem words={saving} />}
      {book.problem && <Problem words={book.problem} again={reload} />}
      {page?.damaged.length ? <Damaged page={page} /> : null}
      {page === null && !book.problem && <Loading what="rollouts" />}
      {page?.total === 0 && !page.partial && (
        <Empty title="No rollouts">
          None fits the filters. {!hasEnded.value && params.of !== "evaluations" && "A step's rollouts appear here as soon as it is trained."}
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
