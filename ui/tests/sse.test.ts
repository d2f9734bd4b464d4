import { expect, test } from "vitest";

import { Parser } from "../src/api/sse";

const TEXT = 'retry: 1000\n\nid: s7\nevent: step\ndata: {"step":7}\n\n: still here\n\nevent: log\ndata: a\ndata: b\n\ndata: x\n\n';
const EVENTS = [
  { id: "s7", type: "step", data: '{"step":7}' },
  { id: "s7", type: "log", data: "a\nb" },
  { id: "s7", type: "message", data: "x" },
];

test("events come out, comments and empty ones do not, and the last id is kept", () => {
  expect(new Parser().feed(TEXT)).toEqual(EVENTS);
});

test("it does not matter where the stream is cut", () => {
  const parser = new Parser();
  expect([...TEXT].flatMap((letter) => parser.feed(letter))).toEqual(EVENTS);
});

test("lines may end as on Windows", () => {
  expect(new Parser().feed(TEXT.replaceAll("\n", "\r\n"))).toEqual(EVENTS);
});
