// The token that this tab shows the service: from the link `#token=...` or from the dialog, kept until the tab is closed.

const KEY = "headrace.token"; // The dashboard's too: a link from there to here needs no other.
const dialog = document.getElementById("ask-token");
const input = document.getElementById("token-input");
const problem = document.getElementById("token-problem");

/** Takes the token out of the address, and out of the history: it is shown and shared. */
function takeFromAddress() {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) {
    return false;
  }
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}

takeFromAddress();
window.addEventListener("hashchange", () => {
  if (takeFromAddress()) {
    location.reload();
  }
});

export const isKnown = () => sessionStorage.getItem(KEY) !== null;
export const isAsking = () => dialog.open;

/** The header of every request. */
export function authorization() {
  return isKnown() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};
}

/** Asks for a token, with which the page is loaded anew; `refusal`: why that of this tab is refused, or empty. */
export function ask(refusal) {
  problem.textContent = refusal && `The token of this tab is refused: ${refusal}`;
  problem.hidden = !refusal;
  if (!dialog.open) {
    dialog.showModal();
  }
  // Without a token there is nothing to go back to; a browser heeds a second Escape in any case.
  dialog.oncancel = (event) => event.preventDefault();
  dialog.onclose = () => dialog.showModal();
  document.getElementById("token-form").onsubmit = (event) => {
    event.preventDefault();
    if (input.value.trim()) {
      sessionStorage.setItem(KEY, input.value.trim());
      location.reload();
    }
  };
}
