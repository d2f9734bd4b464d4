// Who judges: asked once, kept in this browser.

const KEY = "headrace.annotator";
const dialog = document.getElementById("ask-name");
const input = document.getElementById("name-input");
const problem = document.getElementById("name-problem");

export const known = () => localStorage.getItem(KEY);
export const isAsking = () => dialog.open;

/** Asks for the name; `accept(name)` returns what is wrong with it, or null. Resolves when one was accepted. */
export function ask(accept) {
  input.value = known() ?? "";
  problem.hidden = true;
  dialog.showModal();
  input.select();
  return new Promise((resolve) => {
    document.getElementById("name-form").onsubmit = async (event) => {
      event.preventDefault();
      const name = input.value.trim().replaceAll(/\s+/g, " ");
      const wrong = name ? await accept(name) : "Please give a name.";
      problem.textContent = wrong ?? "";
      problem.hidden = wrong === null;
      if (wrong === null) {
        localStorage.setItem(KEY, name);
        dialog.close();
        resolve(name);
      }
    };
    // Without a name there is nobody whose verdict it would be.
    dialog.oncancel = (event) => {
      if (!known()) {
        event.preventDefault();
      }
    };
    dialog.onclose = () => resolve(known());
  });
}
