import { expect, test } from "vitest";

import { largestAdvantage, shadeOf } from "../src/pages/rollouts/shade";
import { append, hasNewNames } from "../src/state/series";

test("new steps go behind, a missing number is a gap, and the window slides", () => {
  const series = { loss: { x: [1, 2], y: [0.1, 0.2] } };
  expect(append(series, [{ step: 3, loss: 0.3 }, { step: 4 }], 0).loss).toEqual({ x: [1, 2, 3, 4], y: [0.1, 0.2, 0.3, null] });
  expect(append(series, [{ step: 3, loss: 0.3 }], 2).loss).toEqual({ x: [2, 3], y: [0.2, 0.3] });
});

test("a number that no step had before is new, a missing one is not", () => {
  const known = new Set(["loss"]);
  expect(hasNewNames([{ step: 3, loss: 0.3 }], ["loss", "kl"], known)).toBe(false);
  expect(hasNewNames([{ step: 3 }, { step: 4, kl: 0.1 }], ["loss", "kl"], known)).toBe(true);
  expect(hasNewNames([{ step: 4, kl: 0.1 }], ["loss"], known)).toBe(false);
});

test("a token's shade follows its advantage's share of the largest, or how surprising it was", () => {
  const token = { id: 1, text: "a", logprob: -0.3, advantage: -0.5 };
  expect(largestAdvantage([token, { ...token, advantage: 1 }])).toBe(1);
  expect(shadeOf(token, "advantage", 1)).toBe("adv-m2");
  expect(shadeOf(token, "advantage", 0)).toBe("");
  expect(shadeOf(token, "logprob", 1)).toBe("lp-2");
  expect(shadeOf({ ...token, logprob: -9 }, "logprob", 1)).toBe("lp-6");
  expect(shadeOf({ ...token, logprob: null }, "logprob", 1)).toBe("");
  expect(shadeOf(token, "plain", 1)).toBe("");
});
