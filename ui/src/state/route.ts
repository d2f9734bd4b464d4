// Where the page is: `#/page/detail?key=value`. Filters, ranges and picks live here, so that a link shows the same.

import { computed, signal } from "@preact/signals";

export const PAGES = ["run", "rollouts", "fleet", "queues", "compare"] as const;
export type Page = (typeof PAGES)[number];
export type Params = Record<string, string>;

export interface Route {
  page: Page;
  rest: string[];
  params: Params;
}

/** A part of an address; one that is none, such as `%E0`, as it stands. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [first, ...rest] = path.split("/").filter(Boolean).map(decoded);
  const page = PAGES.find((one) => one === first) ?? "run";
  return { page, rest, params: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(page: Page, rest: (string | number)[] = [], params: Params = {}): string {
  const path = [page, ...rest].map((part) => encodeURIComponent(part)).join("/");
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "")).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

const hash = signal(location.hash);
window.addEventListener("hashchange", () => {
  hash.value = location.hash;
});

export const route = computed(() => parse(hash.value));

/** Changes parameters of the page in place: no entry in the history. An empty value takes a parameter out. */
export function setParams(changes: Params): void {
  const { page, rest, params } = route.peek();
  history.replaceState(null, "", link(page, rest, { ...params, ...changes }));
  hash.value = location.hash;
}
