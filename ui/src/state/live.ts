// What the event stream reports: the run's status, its steps and its log; and how fresh all of it is.

import { batch, computed, signal } from "@preact/signals";

import { get } from "../api/client";
import { listen, type ServerEvent } from "../api/sse";
import { refusal } from "../api/token";
import type { Evaluation, LogLine, Row, Status } from "../api/types";

const SILENCE_MS = 25_000; // The service sends a heartbeat every 10 s.
const AGAIN_MS = [500, 1_000, 2_000, 4_000, 8_000];
const MOST_LOG_LINES = 500;

export type Connection = "connecting" | "live" | "reconnecting";

export const status = signal<Status | null>(null);
const ENDS = ["finished", "stopped", "failed", "prepared"];
/** No process of the run is at work: what is shown does not change any more. */
export const hasEnded = computed(() => ENDS.includes(status.value?.state ?? ""));
export const connection = signal<Connection>("connecting");
/** When something was heard last, by this machine's clock in ms; 0 = never. */
export const heardAt = signal(0);
export const log = signal<LogLine[]>([]);
/** Counts the times that all series must be loaded anew. */
export const generation = signal(0);

type StepListener = (rows: Row[]) => void;
type EvalListener = (evaluation: Evaluation) => void;

const stepListeners = new Set<StepListener>();
const evalListeners = new Set<EvalListener>();

function subscribe<T>(set: Set<T>, listener: T): () => void {
  set.add(listener);
  return () => set.delete(listener);
}

export const onSteps = (listener: StepListener) => subscribe(stepListeners, listener);
export const onEval = (listener: EvalListener) => subscribe(evalListeners, listener);

let lastId = "";

/** Lines that came twice, as after a reconnect, are there once. */
function merged(lines: LogLine[], known: LogLine[]): LogLine[] {
  const seen = new Set(known.map((line) => JSON.stringify(line)));
  return [...lines.filter((line) => !seen.has(JSON.stringify(line))), ...known].slice(0, MOST_LOG_LINES);
}

function take(events: ServerEvent[]): void {
  const steps: Row[] = [];
  const lines: LogLine[] = [];
  for (const event of events) {
    lastId = event.id || lastId;
    if (event.type === "resync") {
      generation.value += 1;
      continue;
    }
    const data: unknown = JSON.parse(event.data);
    if (event.type === "status") {
      status.value = data as Status;
    } else if (event.type === "step") {
      steps.push(data as Row);
    } else if (event.type === "log") {
      lines.unshift(data as LogLine);
    } else if (event.type === "eval") {
      evalListeners.forEach((listener) => listener(data as Evaluation));
    }
  }
  if (lines.length > 0) {
    log.value = merged(lines, log.value);
  }
  if (steps.length > 0) {
    stepListeners.forEach((listener) => listener(steps));
  }
}

async function listenOnce(heard: () => void): Promise<void> {
  const controller = new AbortController();
  const watch = setInterval(() => {
    if (Date.now() - heardAt.value > SILENCE_MS) {
      controller.abort();
    }
  }, 1_000);
  heardAt.value = Date.now();
  try {
    await listen("/api/events", lastId, controller.signal, (events) =>
      batch(() => {
        heardAt.value = Date.now();
        connection.value = "live";
        heard();
        take(events);
      }),
    );
  } finally {
    clearInterval(watch);
  }
}

async function loadOnce(): Promise<void> {
  const [view, lines] = await Promise.all([get<Status>("/api/status"), get<LogLine[]>("/api/log", { limit: 200 })]);
  batch(() => {
    status.value = view;
    log.value = lines;
  });
}

/** Follows the run for as long as the page is open and may read it: with another token the page is loaded anew. */
export async function follow(): Promise<void> {
  for (let tries = 0; refusal.value === null; ) {
    try {
      await loadOnce();
      await listenOnce(() => {
        tries = 0;
      });
    } catch {
      // Whatever it was, the next try shows it; the page shows meanwhile that it is not connected.
    }
    connection.value = heardAt.value > 0 ? "reconnecting" : "connecting";
    const wait = AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)] ?? 0;
    tries += 1;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
