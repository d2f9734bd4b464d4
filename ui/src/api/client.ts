// What the dashboard asks of the orchestrator it came from.

import { authorization, isTokenWanted, refusal } from "./token";
import type { ErrorReply } from "./types";

const DEADLINE_MS = 20_000;
const DOWNLOAD_MS = 600_000;

export type Query = Record<string, string | number | undefined>;

/** The orchestrator has answered, and said no. */
export class Refused extends Error {
  constructor(
    words: string,
    /** Whether with another token the same request may go better. */
    readonly needsToken: boolean,
    /** Whether the same request may go better later. */
    readonly isPassing: boolean,
  ) {
    super(words);
  }
}

/** Why something failed, in one line. */
export function reasonOf(error: unknown): string {
  if (error instanceof Refused) {
    return error.message;
  }
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return "The orchestrator did not answer in time.";
  }
  return "The orchestrator does not answer.";
}

export function address(path: string, query: Query = {}): string {
  const pairs = Object.entries(query).flatMap(([key, value]) =>
    value === undefined || value === "" ? [] : [[key, String(value)]],
  );
  return pairs.length > 0 ? `${path}?${new URLSearchParams(pairs)}` : path;
}

interface Options extends RequestInit {
  headers?: Record<string, string>;
  /** Sent in place of the tab's. */
  token?: string | undefined;
}

async function ask(path: string, { token, ...options }: Options, signal?: AbortSignal, deadlineMs = DEADLINE_MS): Promise<Response> {
  const deadline = AbortSignal.timeout(deadlineMs);
  const answer = await fetch(path, {
    redirect: "error",
    signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    ...options,
    headers: { ...authorization(token), ...options.headers },
  });
  if (!answer.ok) {
    const found: unknown = await answer.json().catch(() => null);
    // Of a page that goes as another of its requests is refused: the reason is in that one.
    signal?.throwIfAborted();
    const { error } = (found ?? {}) as Partial<ErrorReply>;
    throw new Refused(error ?? `The orchestrator answered ${answer.status}.`, isTokenWanted(answer), answer.status >= 500);
  }
  return answer;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return read<T>(address(path, query), {}, signal);
}

/** Saves what a path answers as a file, with the tab's token. */
export async function download(path: string, name: string): Promise<void> {
  const answer = await ask(path, {}, undefined, DOWNLOAD_MS);
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Sends a body, with the tab's token. */
export function post<T>(path: string, body: Record<string, unknown>): Promise<T> {
  return read<T>(path, posted(body));
}

async function read<T>(path: string, options: Options, signal?: AbortSignal): Promise<T> {
  try {
    // Rejects where the body is cut short, as by who no longer wants it.
    return (await (await ask(path, options, signal)).json()) as T;
  } catch (error) {
    if (error instanceof Refused && error.needsToken) {
      refusal.value = error.message;
    }
    throw error;
  }
}

/** Does something to the run; resolves with what was said. `token`: shown in place of the tab's, and not kept. */
export async function act(path: string, body: Record<string, unknown> = {}, token?: string): Promise<string> {
  const answer = await ask(path, { ...posted(body), token });
  return ((await answer.json()) as { said: string }).said;
}

function posted(body: Record<string, unknown>): Options {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}
