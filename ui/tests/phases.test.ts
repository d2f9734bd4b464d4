import { expect, test } from "vitest";

import { CHARTS, namesOf, titleOf } from "../src/charts/catalog";
import { PHASES, stepTime } from "../src/charts/phases";

const at = (...y: (number | null)[]) => ({ x: y.map((_, step) => step + 1), y });
const key = (name: string) => `phase_seconds_${name}`;

test("each phase is a band, the small ones are part of the rest, and nothing is lost", () => {
  const bands = stepTime({
    [key("policy_update")]: at(6, 6),
    [key("wait")]: at(3, 1),
    [key("advantages")]: at(0.01, 0.02),
    [key("other")]: at(0.5, 0.5),
  });
  expect(bands.map(({ label }) => label)).toEqual(["policy update", "wait for batch", "other"]);
  expect(bands.at(-1)?.points.y).toEqual([0.51, 0.52]);
});

test("a step without a checkpoint took no time for one", () => {
  const bands = stepTime({ [key("policy_update")]: at(1, 1, 1), [key("checkpoint")]: at(null, 2, null), [key("other")]: at(0, 0, 0) });
  expect(bands[1]).toMatchObject({ label: "checkpoint", points: { y: [0, 2, 0] } });
});

test("there are never more bands than colours, and each has its own", () => {
  const series = Object.fromEntries(PHASES.map(({ name }, number) => [name, at(10 + number)]));
  const bands = stepTime({ ...series, [key("other")]: at(1) });
  const sum = bands.reduce((whole, { points }) => whole + (points.y[0] ?? 0), 0);
  expect(bands).toHaveLength(8);
  expect(new Set(bands.map(({ slot }) => slot)).size).toBe(8);
  expect(sum).toBe(1 + PHASES.reduce((whole, _, number) => whole + 10 + number, 0));
});

test("what every run has keeps its colour whatever else there is", () => {
  const few = stepTime({ [key("policy_update")]: at(1), [key("wait")]: at(1), [key("other")]: at(1) });
  const more = stepTime({ [key("policy_update")]: at(1), [key("wait")]: at(1), [key("reference")]: at(1), [key("other")]: at(1) });
  expect(few.slice(0, 2).map(({ slot }) => slot)).toEqual(more.slice(0, 2).map(({ slot }) => slot));
});

test("a run from before phases shows train, wait and what they leave", () => {
  const bands = stepTime({ train_seconds: at(2, 2), wait_batch_seconds: at(1, 0), seconds: at(4, null) });
  expect(bands.map(({ label }) => label)).toEqual(["train", "wait for batch", "rest"]);
  expect(bands[2]?.points.y).toEqual([1, null]);
});

test("a stage that tells no parts shows the whole step", () => {
  expect(stepTime({ seconds: at(4, 5) })).toEqual([{ label: "step", slot: 0, points: at(4, 5) }]);
});

test("a metric is called as its chart, and as itself where that has several", () => {
  expect(titleOf("reward_mean")).toBe("Reward: mean");
  expect(titleOf(key("old_logprobs"))).toBe("Step time: old logprobs");
  expect(titleOf("grad_norm")).toBe("grad_norm");
});

test("the charts ask for no more than the service answers at once", () => {
  const names = namesOf(CHARTS);
  expect(names).toEqual(expect.arrayContaining([...PHASES.map(({ name }) => name), key("other"), "seconds"]));
  expect(names.length).toBeLessThan(50);
});
