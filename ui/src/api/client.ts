// What the dashboard asks of the orchestrator it came from.

import { authorization, isTokenWanted, refusal } from "./token";
import type { ErrorReply } from "./types";

const DEADLINE_MS = 20_000;

export type Query = Record<string, string | number | undefined>;

/** The orchestrator has answered, and said no. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    words: string,
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

async function ask<T>(path: string, options: RequestInit, signal?: AbortSignal): Promise<T> {
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  const answer = await fetch(path, {
    redirect: "error",
    signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    ...options,
    headers: { ...authorization(), ...options.headers },
  });
  if (!answer.ok) {
    const found: unknown = await answer.json().catch(() => null);
    const { error } = (found ?? {}) as Partial<ErrorReply>;
    throw new Refused(answer.status, error ?? `The orchestrator answered ${answer.status}.`);
  }
  // Rejects where the body is cut short, as by who no longer wants it.
  return (await answer.json()) as T;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  try {
    return await ask<T>(address(path, query), {}, signal);
  } catch (error) {
    if (error instanceof Refused && isTokenWanted(error.status)) {
      refusal.value = error.message;
    }
    throw error;
  }
}

/** Does something to the run; resolves with what was said. */
export async function act(path: string, body: Record<string, unknown> = {}): Promise<string> {
  const { said } = await ask<{ said: string }>(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return said;
}
