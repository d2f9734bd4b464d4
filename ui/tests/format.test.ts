import { expect, test } from "vitest";

import { bytes, clock, duration, num, percent, versionWords } from "../src/format";

test("numbers keep three digits and stay short", () => {
  const said = [0, 1, 0.123456, 12.3456, 1234, 9999, 12_345, 1_234_567, 0.000123, -0.5].map((value) => num(value));
  expect(said).toEqual(["0", "1", "0.123", "12.3", "1234", "9999", "12.3k", "1.23M", "1.2e-4", "-0.5"]);
  expect([num(null), num(Number.NaN), percent(null)]).toEqual(["\u2013", "\u2013", "\u2013"]);
});

test("durations have two units at most", () => {
  const said = [0.0349, 4.25, 59, 60, 61, 3_600, 7_500, 90_061].map((value) => duration(value));
  expect(said).toEqual(["35 ms", "4.3 s", "59 s", "1 min", "1 min 1 s", "1 h", "2 h 5 min", "1 d 1 h"]);
});

test("a version names the trainer's life where it is not the first, and microseconds are told", () => {
  expect(["1.98", "2.98", "", "x"].map(versionWords)).toEqual(["98", "98 of life 2", "", "x"]);
  expect(duration(0.00002)).toBe("20 \u00b5s");
});

test("sizes", () => {
  expect([0, 1023, 1024, 1_572_864].map(bytes)).toEqual(["0 B", "1020 B", "1 KiB", "1.5 MiB"]);
});

test("times on the edge of a unit, before now, and of no calendar", () => {
  expect([59.7, 3599.7, 0.9999, -5].map(duration)).toEqual(["1 min", "1 h", "1 s", "0 ms"]);
  expect(clock(1e30)).toBe("\u2013");
});
