// Takes the token out of the address, which is shown and shared, and so out of the entries that back and forward go to.
// A browser that keeps visited addresses in a file has it there, unless it opened the link in a private window.

import { isToken, keepToken, linkProblem } from "./token";

const WORDS = "The token of the link has characters that no token has. Copy the whole link once more, or paste the token.";

/** The browser encodes what an address cannot have; the token stays as it is given, since one may hold a `%`. */
function isSound(given: string): boolean {
  try {
    return isToken(given) && isToken(decodeURIComponent(given));
  } catch {
    return isToken(given);
  }
}

function takeToken(): boolean {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) {
    return false;
  }
  history.replaceState(null, "", location.pathname + location.search);
  if (!isSound(given)) {
    linkProblem.value = WORDS;
    return false;
  }
  keepToken(given);
  return true;
}

// Before any other module reads the address; and where a link is pasted into an open page.
takeToken();
window.addEventListener("hashchange", () => {
  if (takeToken()) {
    location.reload();
  }
});
