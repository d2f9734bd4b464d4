import { signal } from "@preact/signals";

/** This machine's time in ms, once a second: what is shown as "8 s ago" grows without news. */
export const ticking = signal(Date.now());

setInterval(() => {
  ticking.value = Date.now();
}, 1_000);
