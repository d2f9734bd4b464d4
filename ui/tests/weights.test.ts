import { expect, test } from "vitest";

import { notesOf, PROOFS, wayOf } from "../src/pages/fleet/weights";

test("the way of the weights is said in words, and none before it is known", () => {
  expect(wayOf({ route: "nccl" })).toBe("over nccl");
  expect(wayOf({ route: "disk" })).toBe("from disk");
  expect(wayOf({ route: "" })).toBe("");
  // A run of before has no such field.
  expect(wayOf({})).toBe("");
});

test("what is worse than it could be has its reasons, and nothing else has", () => {
  expect(notesOf({ route: "gloo", route_reason: "unequal NCCL versions", proof_note: "w differs" })).toEqual([
    "unequal NCCL versions",
    "w differs",
  ]);
  expect(notesOf({ route: "nccl", route_reason: "", proof: "proven", proof_note: "" })).toEqual([]);
});

test("each proof is explained", () => {
  expect(Object.keys(PROOFS)).toEqual(["proven", "compared", "canary"]);
});
