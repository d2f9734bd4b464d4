import { expect, test } from "vitest";

import type { Status } from "../src/api/types";
import { rowsOf } from "../src/pages/fleet/services";

test("every service of the run has a row, and says what it waits for", () => {
  const stream = { length: 5, pending: 2, undelivered: 3, oldest_pending_s: 1 };
  const view = {
    state: "running", step: 7, version: 7, waiting_for: "", evaluating: "", credit: { issued: 3, limit: 8 },
    trainer: { state: "alive", waiting_for: "a batch", waiting_share: 0.25, metrics: {} },
    replicas: [{ id: "rollout-0", state: "serving", version: "1.7", in_flight_rollouts: 1, waiting_share: 0, waiting_for: "", tokens_per_second: 5 }],
    environments: [{ id: "environment-0", slots: 4, playing: 0, waiting: 0, waits: [], notes: [], seen: 1 }],
    streams: { rollouts: stream, scored: { ...stream, length: 1 } },
  } as unknown as Status;
  const rows = rowsOf(view);
  expect(rows.map(({ name }) => name)).toEqual(["orchestrator", "trainer", "rollout-0", "environment-0", "reward", "broker"]);
  expect(rows.map(({ waits }) => waits)).toEqual(["", "25%, now for a batch", "0%", "", "3 groups to score", ""]);
  expect(rows.at(-1)?.doing).toBe("6 entries in 2 streams");
});
