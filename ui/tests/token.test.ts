import { expect, test } from "vitest";

import { isToken, isTokenWanted } from "../src/api/token";

test("what a header cannot carry, or a token has not, is no token", () => {
  expect(isToken("0f".repeat(32))).toBe(true);
  expect(isToken("an-operators.token_with%25!~")).toBe(true);
  for (const wrong of ["", " ", "two words", "tab\tbed", "zero\u200bwidth", "\u201cquoted\u201d", "\u00fc", "a\n", "\u007f"]) {
    expect(isToken(wrong), JSON.stringify(wrong)).toBe(false);
  }
  for (const wrong of ["zero\u200bwidth", "\u201cquoted\u201d"]) {
    expect(() => new Headers({ Authorization: `Bearer ${wrong}` })).toThrow(TypeError);
  }
});

test("a token is asked for where another would do, not at every 403", () => {
  const answer = (status: number, challenge?: string) =>
    new Response(null, { status, ...(challenge ? { headers: { "WWW-Authenticate": challenge } } : {}) });
  expect(isTokenWanted(answer(401, "Bearer"))).toBe(true);
  expect(isTokenWanted(answer(403, 'Bearer error="insufficient_scope"'))).toBe(true);
  expect(isTokenWanted(answer(403))).toBe(false);
  expect(isTokenWanted(answer(409))).toBe(false);
});
