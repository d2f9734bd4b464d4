// The metrics of the run: a thinned series from the service, and the steps that have come since.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, type Query, reasonOf } from "../api/client";
import type { Evaluation, Points, Row, Series } from "../api/types";
import { componentOf } from "../charts/metrics";
import { generation, onEval, onSteps, status } from "./live";

export interface Window {
  from?: number;
  to?: number;
  /** Only the newest steps, as many as this. */
  newest?: number;
}

export interface Loaded {
  series: Record<string, Points>;
  evals: Evaluation[];
  names: string[];
  last: number;
  isLoading: boolean;
  problem: string;
}

const NOTHING: Loaded = { series: {}, evals: [], names: [], last: 0, isLoading: true, problem: "" };
const POINTS = 800;
const AGAIN_MS = 1_000;
const BEHIND_MS = 5_000; // Steps come by the stream, which a busy service may read later than its status.
const MOST_NAMES = 64;

const numberOf = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null);

const TOTAL = "trained_tokens_total";

/** The row with its part of a running sum added to what was there. */
function withTotal(rows: Row[], { y }: Points): Row[] {
  let total = y.at(-1) ?? 0;
  return rows.map((row) => ({ ...row, [TOTAL]: (total += numberOf(row.trained_tokens) ?? 0) }));
}

/** Adds rows behind; `first` is the oldest step that stays. */
export function append(series: Record<string, Points>, rows: Row[], first: number): Record<string, Points> {
  const steps = rows.map((row) => Number(row.step));
  const summed = series[TOTAL] ? withTotal(rows, series[TOTAL]) : rows;
  return Object.fromEntries(
    Object.entries(series).map(([name, { x, y }]) => {
      const all = { x: [...x, ...steps], y: [...y, ...summed.map((row) => numberOf(row[name]))] };
      const cut = all.x.findIndex((step) => step >= first);
      return [name, cut > 0 ? { x: all.x.slice(cut), y: all.y.slice(cut) } : all];
    }),
  );
}

/** Whether a step has a number that no step before had: its curve must be loaded. */
export function hasNewNames(rows: Row[], wanted: string[], known: Set<string>): boolean {
  return wanted.some((name) => !known.has(name) && rows.some((row) => numberOf(row[name]) !== null));
}

/** Curves of any number of metrics: the service gives so many at once. */
async function loadSeries(names: string[], query: Query, signal: AbortSignal): Promise<Series> {
  const parts = Array.from({ length: Math.ceil(names.length / MOST_NAMES) }, (_, at) =>
    get<Series>("/api/series", { ...query, names: names.slice(at * MOST_NAMES, (at + 1) * MOST_NAMES).join(",") }, signal),
  );
  const [first, ...others] = await Promise.all(parts);
  return others.reduce((all, one) => ({ ...one, series: { ...all.series, ...one.series } }), first as Series);
}

function firstStep(window: Window, last: number): number {
  return window.newest ? Math.max(1, last - window.newest + 1) : (window.from ?? 0);
}

export function useSeries(names: string[], window: Window): Loaded {
  const [loaded, setLoaded] = useState(NOTHING);
  const [again, setAgain] = useState(0);
  const known = useRef({ last: 0, appended: 0, isLoading: true, names: new Set<string>(), all: [] as string[] });
  const { from, to, newest } = window;
  const key = names.join(",");

  useEffect(() => {
    const controller = new AbortController();
    const first = firstStep(window, status.peek()?.step ?? 0);
    known.current.isLoading = true;
    setLoaded((old) => ({ ...old, isLoading: true }));
    loadSeries(key.split(","), { points: POINTS, from: first, to }, controller.signal).then(
      (found) => {
        known.current = { last: found.last, appended: 0, isLoading: false, names: new Set(Object.keys(found.series)), all: found.names };
        setLoaded({ ...found, isLoading: false, problem: "" });
      },
      (error: unknown) => {
        if (!controller.signal.aborted) {
          known.current.isLoading = false;
          setLoaded((old) => ({ ...old, isLoading: false, problem: reasonOf(error) }));
        }
      },
    );
    return () => controller.abort();
  }, [key, from, to, newest, again, generation.value]);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let behind: ReturnType<typeof setTimeout> | undefined;
    const isBehind = () => (status.peek()?.step ?? 0) > known.current.last;
    const loadSoon = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        if (known.current.isLoading) {
          loadSoon(); // A page that gives a slow answer up to ask again never gets one.
        } else {
          setAgain((old) => old + 1);
        }
      }, AGAIN_MS);
    };
    // A step that was done between the load and the stream's begin is in neither.
    const stopLooking = status.subscribe(() => {
      if (isBehind() && !known.current.isLoading) {
        behind ??= setTimeout(() => {
          behind = undefined;
          if (isBehind()) {
            loadSoon();
          }
        }, BEHIND_MS);
      }
    });
    const stop = onSteps((rows) => {
      const state = known.current;
      const isNext = Number(rows[0]?.step) === state.last + 1;
      state.appended += rows.length;
      const more = rows.flatMap((row) => Object.keys(row)).filter((name) => componentOf(name) && !state.all.includes(name));
      const hasNew = more.length > 0 || hasNewNames(rows, key.split(","), state.names);
      if (state.isLoading || !isNext || state.appended > POINTS || hasNew) {
        loadSoon();
        return;
      }
      const last = Number(rows.at(-1)?.step);
      state.last = last;
      setLoaded((old) => ({
        ...old,
        last,
        series: to === undefined ? append(old.series, rows, firstStep(window, last)) : old.series,
      }));
    });
    return () => {
      clearTimeout(timer);
      clearTimeout(behind);
      stopLooking();
      stop();
    };
  }, [key, from, to, newest]);

  useEffect(
    () =>
      onEval((evaluation) =>
        setLoaded((old) => ({
          ...old,
          evals: [...old.evals.filter((one) => one.version !== evaluation.version), evaluation],
        })),
      ),
    [],
  );
  return loaded;
}
