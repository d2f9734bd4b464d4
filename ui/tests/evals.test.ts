import { expect, test } from "vitest";

import type { Evaluation } from "../src/api/types";
import { CHARTS, withEvals } from "../src/charts/catalog";
import { evalPoints, evalTitle, measuresOf, setOf } from "../src/charts/evals";
import { formatOf } from "../src/charts/metrics";

const named = (version: number, math: number): Evaluation =>
  ({ version, accuracy: null, "math/accuracy": math, "math/reward_mean": 0.1, "code/accuracy": 0.5 }) as Evaluation;

test("each named set has a curve of its accuracy, in the order of the versions", () => {
  const evals = [named(4, 0.75), named(0, 0.25)];
  expect(measuresOf(evals)).toEqual(["math/accuracy", "code/accuracy"]);
  expect(evalPoints(evals, "math/accuracy")).toEqual({ x: [0, 4], y: [0.25, 0.75] });
  const chart = withEvals(CHARTS, evals).find(({ kind }) => kind === "evals");
  expect(chart?.curves).toEqual([
    { name: "math/accuracy", label: "math" },
    { name: "code/accuracy", label: "code" },
  ]);
  expect(formatOf("math/accuracy")(0.75)).toBe(formatOf("accuracy")(0.75));
});

test("graded scores have the mean reward instead", () => {
  const evals = [{ version: 3, accuracy: null, "essays/reward_mean": 1.5, "rewards/accuracy/mean": 0.5 } as Evaluation];
  const [key = ""] = measuresOf(evals);
  expect([key, evalTitle(key), setOf(key)]).toEqual(["essays/reward_mean", "Held-out reward", "essays"]);
  expect(withEvals(CHARTS, evals).find(({ kind }) => kind === "evals")?.title).toBe("Held-out reward");
});

test("a set without a name, or no evaluation, is shown as before", () => {
  expect(measuresOf([{ version: 1, accuracy: 0.5 } as Evaluation])).toEqual(["accuracy"]);
  expect(withEvals(CHARTS, [])).toEqual(CHARTS);
});
