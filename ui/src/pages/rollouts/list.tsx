import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { RolloutRow } from "../../api/types";
import { count, num } from "../../format";
import { link, type Params, setParams } from "../../state/route";
import type { Book } from "./book";

interface Column {
  key: string;
  label: string;
  /** What the service sorts by. */
  sort?: string;
  isNumber?: boolean;
  of: (row: RolloutRow, params: Params) => ComponentChildren;
}

const COLUMNS: Column[] = [
  { key: "step", label: "Step", sort: "step", isNumber: true, of: (row) => row.step },
  { key: "group", label: "Group", isNumber: true, of: (row) => <>{row.group_index}<span class="muted">.{row.rollout_index}</span></> },
  { key: "reward", label: "Reward", sort: "reward", isNumber: true, of: rewardOf },
  { key: "advantage", label: "Advantage", sort: "advantage", isNumber: true, of: ({ advantage }) => num(advantage) },
  { key: "tokens", label: "Tokens", sort: "tokens", isNumber: true, of: (row) => count(row.tokens) },
  { key: "version", label: "Version", isNumber: true, of: versionsOf },
  { key: "finish", label: "Finish", of: (row) => row.finish_reason },
  { key: "replica", label: "Replica", of: (row) => row.set || row.replica_id },
  { key: "prompt", label: "Prompt", of: (row) => row.prompt },
  { key: "answer", label: "Answer", of: (row) => row.answer },
  { key: "completion", label: "Completion", of: (row) => row.completion },
];

function rewardOf(row: RolloutRow, params: Params) {
  return <>{num(row.reward)}{params.component && <span class="muted"> {num(row.component)}</span>}</>;
}

function versionsOf({ min_version: low, max_version: high }: RolloutRow) {
  return low === high ? high : `${low}\u2013${high}`;
}

const AROUND = 10;
const MOST_PIXELS = 30_000_000; // Higher than this no browser makes a box.
const NARROW = matchMedia("(max-width: 52rem)");
const WIDE_ROW = 34;
const NARROW_ROW = 76;

/** Where the list was left, so that the way back from a group leads there. */
const left = { query: "", at: 0 };

function useRowHeight(): number {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return isNarrow ? NARROW_ROW : WIDE_ROW;
}

interface Props {
  book: Book;
  /** Makes the list draw anew, and ask for what has gone: the book is the same object with other rows in it. */
  revision: number;
  total: number;
  query: string;
  params: Params;
}

export function RolloutList({ book, revision, total, query, params }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useRef<HTMLDivElement>(null);
  const height = useRowHeight();
  const [view, setView] = useState({ first: 0, rows: 30 });
  const shown = Math.min(total, Math.floor(MOST_PIXELS / height));
  const begin = Math.max(0, view.first - AROUND);
  const end = Math.min(shown, view.first + view.rows + AROUND);

  const look = () => {
    const place = box.current;
    if (place) {
      const rows = Math.ceil(place.clientHeight / height);
      // In strides: a row more or less in sight draws nothing.
      const first = Math.floor(place.scrollTop / height / 4) * 4;
      Object.assign(left, { query, at: place.scrollTop });
      setView((old) => (old.first === first && old.rows === rows ? old : { first, rows }));
    }
  };
  useLayoutEffect(() => {
    if (box.current) {
      box.current.scrollTop = left.query === query ? left.at : 0;
    }
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current as Element);
    return () => observer.disconnect();
  }, [query, height]);
  useEffect(() => book.need(begin, Math.max(begin, end - 1)), [book, revision, begin, end]);

  useLayoutEffect(() => rows.current?.style.setProperty("transform", `translateY(${begin * height}px)`), [begin, height]);

  const places = Array.from({ length: Math.max(0, end - begin) }, (_, at) => begin + at);
  return (
    <div class="rollout-list" role="table" aria-label="Rollouts" aria-rowcount={shown + 1}>
      <Head params={params} />
      <div class="list-body" ref={box} role="rowgroup" onScroll={look} onKeyDown={move}>
        <svg class="spacer" width="1" height={shown * height} aria-hidden="true" />
        <div class="rows" ref={rows}>
          {places.map((at) => (
            <Line key={at % (view.rows + 2 * AROUND)} at={at} row={book.row(at)} params={params} />
          ))}
        </div>
      </div>
      {shown < total && <p class="muted small">The first {count(shown)} are shown; narrow the filters to see others.</p>}
    </div>
  );
}

/** Evaluations have sets, and their steps are versions. */
const labelOf = ({ key, label }: Column, params: Params) =>
  (params.of === "evaluations" && { step: "At", replica: "Set" }[key]) || label;

function Head({ params }: { params: Params }) {
  const sort = params.sort || "-step";
  return (
    <div class="list-head" role="rowgroup">
      <div class="list-row" role="row" aria-rowindex={1}>
        {COLUMNS.map((column) => {
          const isUp = sort === column.sort;
          const isDown = sort === `-${column.sort}`;
          return (
            <div
              key={column.key}
              class={`${column.key} ${column.isNumber ? "number" : ""}`}
              role="columnheader"
              aria-sort={isUp ? "ascending" : isDown ? "descending" : undefined}
            >
              {column.sort ? (
                <button type="button" onClick={() => setParams({ sort: isDown ? `${column.sort}` : `-${column.sort}` })}>
                  {labelOf(column, params)}
                  <span aria-hidden="true">{isUp ? " \u2191" : isDown ? " \u2193" : ""}</span>
                </button>
              ) : (
                labelOf(column, params)
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const signOf = (value: number | null) => (value === null || value === 0 ? "" : value > 0 ? "plus" : "minus");

function Line({ at, row, params }: { at: number; row: RolloutRow | undefined; params: Params }) {
  if (row === undefined) {
    return <div class="list-row coming" role="row" aria-rowindex={at + 2} />;
  }
  const to = link("rollouts", [row.step, row.group_index], { ...params, rollout: String(row.rollout_index) });
  const label = `Step ${row.step}, group ${row.group_index}, rollout ${row.rollout_index}`;
  return (
    <div class="list-row" role="row" aria-rowindex={at + 2}>
      {COLUMNS.map(({ key, isNumber, of }) => (
        <div key={key} class={`${key} ${isNumber ? "number" : ""} ${key === "advantage" ? signOf(row.advantage) : ""}`} role="cell">
          {key === "step" ? <a class="row-link" href={to} data-at={at} aria-label={label}>{of(row, params)}</a> : of(row, params)}
        </div>
      ))}
    </div>
  );
}

/** Arrow keys walk the rows; those out of sight are scrolled in first. */
function move(event: KeyboardEvent): void {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const focused = document.activeElement;
  if (by === undefined || !(focused instanceof HTMLElement) || focused.dataset.at === undefined) {
    return;
  }
  event.preventDefault();
  const next = Number(focused.dataset.at) + by;
  document.querySelector<HTMLElement>(`.row-link[data-at="${next}"]`)?.focus();
}
