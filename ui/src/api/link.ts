// Takes the token out of the address, and out of the history: both are shown and shared.

import { keepToken } from "./token";

function takeToken(): boolean {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) {
    return false;
  }
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}

// Before any other module reads the address; and where a link is pasted into an open page.
takeToken();
window.addEventListener("hashchange", () => {
  if (takeToken()) {
    location.reload();
  }
});
