import { expect, test } from "vitest";

import { align, nearest, smooth, span, stack } from "../src/charts/points";
import { weightOf } from "../src/charts/smoothing";

test("curves with other steps share one axis; a missing number stays a gap, a missing point is none", () => {
  const found = align([
    { x: [1, 3], y: [10, null] },
    { x: [2, 3], y: [5, 6] },
  ]);
  expect(found.x).toEqual([1, 2, 3]);
  expect(found.ys).toEqual([
    [10, undefined, null],
    [undefined, 5, 6],
  ]);
});

test("smoothing begins at the first number, keeps a constant, and minds how far apart steps are", () => {
  expect(smooth({ x: [1, 2, 3], y: [4, 4, 4] }, 0.9).y.map((value) => value?.toFixed(6))).toEqual(["4.000000", "4.000000", "4.000000"]);
  const near = smooth({ x: [1, 2], y: [0, 1] }, 0.9).y[1] ?? 0;
  const far = smooth({ x: [1, 50], y: [0, 1] }, 0.9).y[1] ?? 0;
  expect(near).toBeCloseTo(1 / 1.9);
  expect(far).toBeGreaterThan(near);
  expect(smooth({ x: [1, 2, 3], y: [1, null, 3] }, 0.5).y[1]).toBeNull();
});

test("no smoothing leaves the numbers as they are", () => {
  const points = { x: [1, 2, 3], y: [1, -2, 3] };
  expect(smooth(points, weightOf("off", points)).y).toEqual([1, -2, 3]);
  expect(weightOf("much", points)).toBeGreaterThan(weightOf("some", points));
});

test("stacked curves are running sums, interpolated between their own points", () => {
  const found = stack([
    { x: [0, 2], y: [1, 3] },
    { x: [0, 1, 2], y: [1, 1, 1] },
  ]);
  expect(found.x).toEqual([0, 1, 2]);
  expect(found.ys).toEqual([
    [1, 2, 3],
    [2, 3, 4],
  ]);
});

test("the value under the cursor is that of the nearest point", () => {
  const points = { x: [10, 20, 40], y: [1, 2, 4] };
  expect([0, 14, 16, 29, 31, 99].map((step) => nearest(points, step))).toEqual([1, 1, 2, 2, 4, 4]);
  expect(nearest({ x: [], y: [] }, 3)).toBeNull();
});

test("an axis has a height, and begins at 0 where the numbers lie near it", () => {
  expect(span(null, null)).toEqual([0, 1]);
  expect(span(0, 0)).toEqual([0, 1]);
  expect(span(5, 5)).toEqual([4.5, 5.5]);
  expect(span(0.1, 1)[0]).toBe(0);
  expect(span(90, 100)[0]).toBeGreaterThan(80);
  expect(span(-3, -1)[1]).toBe(0);
});
