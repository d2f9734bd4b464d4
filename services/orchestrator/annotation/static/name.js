// Who judges: asked once, kept in this browser.

const KEY = "headrace.annotator";
const dialog = document.getElementById("ask-name");
const input = document.getElementById("name-input");
const problem = document.getElementById("name-problem");

export const known = () => localStorage.getItem(KEY);
export const isAsking = () => dialog.open;

/**
 * Asks for the name; `accept(name)` returns what is wrong with it, or null. Resolves with the name that was accepted,
 * or with `current` if the dialog was closed without one.
 */
export function ask(current, accept) {
  input.value = current ?? "";
  problem.hidden = true;
  dialog.showModal();
  input.select();
  return new Promise((resolve) => {
    let found = current;
    let isChecking = false;
    document.getElementById("name-form").onsubmit = async (event) => {
      event.preventDefault();
      if (isChecking) {
        return;
      }
      isChecking = true;
      const name = input.value.trim().replaceAll(/\s+/g, " ");
      const wrong = name ? await accept(name) : "Please give a name.";
      isChecking = false;
      problem.textContent = wrong ?? "";
      problem.hidden = wrong === null;
      if (wrong === null) {
        localStorage.setItem(KEY, name);
        found = name;
        dialog.close();
      }
    };
    // Not while a name is on its way; and without a name there is nobody whose verdict it would be.
    dialog.oncancel = (event) => {
      if (isChecking || !found) {
        event.preventDefault();
      }
    };
    dialog.onclose = () => {
      if (!found || isChecking) {
        dialog.showModal(); // A browser heeds a second Escape in any case.
      } else {
        resolve(found);
      }
    };
  });
}
