import { expect, test } from "vitest";

import { axisOf, STEPS } from "../src/charts/axis";
import { CHARTS, namesOf, withComponents } from "../src/charts/catalog";
import { append } from "../src/state/series";

test("an axis of time leads from a step to its place and back, between the steps that are known too", () => {
  const axis = axisOf("time", { t: { x: [1, 3], y: [110, 150] } }, 100);
  expect([1, 2, 3].map(axis.of)).toEqual([10, 30, 50]);
  expect([10, 30, 50].map(axis.step)).toEqual([1, 2, 3]);
  expect(axisOf("tokens", {}, 0)).toBe(STEPS);
});

test("steps that come add their tokens to the sum", () => {
  const series = { trained_tokens_total: { x: [1], y: [100] } };
  const rows = [{ step: 2, trained_tokens: 20 }, { step: 3 }];
  expect(append(series, rows, 0).trained_tokens_total).toEqual({ x: [1, 2, 3], y: [100, 120, 120] });
});

test("each component has a curve, as many as there are colours", () => {
  const names = Array.from({ length: 9 }, (_, at) => `rewards/c${at}/mean`);
  const found = withComponents(CHARTS, [...names, "rewards/c0/math/mean"]);
  expect(found.find(({ id }) => id === "components")?.curves.map(({ label }) => label)).toEqual(names.slice(0, 8).map((_, at) => `c${at}`));
  expect(namesOf(found)).toContain("rewards/c7/mean");
});
