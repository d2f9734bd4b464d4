// The token that this tab shows the service: from the link `#token=...` or from the dialog, kept until the tab is closed.

const KEY = "headrace.token"; // The dashboard's too: a link from there to here needs no other.
const NO_TOKEN = "This is no token: one has ASCII letters and digits alone, without blanks. Copy it once more.";
const NO_LINK = "The token of the link has characters that no token has. Copy the whole link once more, or paste the token.";
const dialog = document.getElementById("ask-token");
const input = document.getElementById("token-input");
const problem = document.getElementById("token-problem");
let linkProblem = "";

/** Whether a text can be sent: a header takes no character above U+00FF, fetch would throw with every request. */
const isToken = (text) => /^[\x21-\x7e]+$/.test(text);

/** The browser encodes what an address cannot have; the token stays as it is given, since one may hold a `%`. */
function isSound(given) {
  try {
    return isToken(given) && isToken(decodeURIComponent(given));
  } catch {
    return isToken(given);
  }
}

/**
 * Takes the token out of the address, which is shown and shared, and so out of the entries that back and forward go to.
 * A browser that keeps visited addresses in a file has it there, unless it opened the link in a private window.
 */
function takeFromAddress() {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) {
    return false;
  }
  history.replaceState(null, "", location.pathname + location.search);
  if (!isSound(given)) {
    linkProblem = NO_LINK;
    return false;
  }
  sessionStorage.setItem(KEY, given);
  return true;
}

takeFromAddress();
window.addEventListener("hashchange", () => {
  if (takeFromAddress()) {
    location.reload();
  } else if (linkProblem && isAsking()) {
    complain(linkProblem);
  }
});

export const isKnown = () => sessionStorage.getItem(KEY) !== null;
export const isAsking = () => dialog.open;

/** Whether a request was refused for want of a token, or of one of another role: a 403 may have other reasons. */
export function isWanted(answer) {
  const challenge = answer.headers.get("WWW-Authenticate") ?? "";
  return answer.status === 401 || (answer.status === 403 && challenge.includes("insufficient_scope"));
}

/** The header of every request. */
export function authorization() {
  return isKnown() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};
}

function complain(words) {
  problem.textContent = words;
  problem.hidden = !words;
}

/** Asks for a token, with which the page is loaded anew; `refusal`: why that of this tab is refused, or empty. */
export function ask(refusal) {
  complain(linkProblem || (refusal && `The token of this tab is refused: ${refusal}`));
  if (!dialog.open) {
    dialog.showModal();
  }
  // Without a token there is nothing to go back to; a browser heeds a second Escape in any case.
  dialog.oncancel = (event) => event.preventDefault();
  dialog.onclose = () => dialog.showModal();
  document.getElementById("token-form").onsubmit = (event) => {
    event.preventDefault();
    const given = input.value.trim();
    if (!isToken(given)) {
      complain(NO_TOKEN);
      return;
    }
    sessionStorage.setItem(KEY, given);
    location.reload();
  };
}
