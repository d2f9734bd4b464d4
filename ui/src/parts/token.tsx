import { useState } from "preact/hooks";

import { hasToken, isToken, keepToken, linkProblem, NO_TOKEN, refusal } from "../api/token";

/** Stands in place of a page until there is a token that may read the run. */
export function TokenForm() {
  const [wrong, setWrong] = useState("");
  const keep = (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget as HTMLFormElement).get("token")).trim();
    if (isToken(token)) {
      keepToken(token);
      location.reload();
    } else {
      setWrong(NO_TOKEN);
    }
  };
  const problem = wrong || linkProblem.value || (hasToken() && `The token of this tab is refused: ${refusal.value}`);
  return (
    <form class="token-form" onSubmit={keep} aria-label="Token">
      <h2>This run asks for a token</h2>
      <p>
        <code>headrace dashboard RUN_DIR</code>, for annotators <code>headrace annotate RUN_DIR</code>, prints a link that
        has it. Or paste a token.
      </p>
      <label class="field">
        <span>Token</span>
        <input name="token" type="password" required autocomplete="off" spellcheck={false} autofocus />
      </label>
      {problem && (
        <p class="said bad" role="alert">
          {problem}
        </p>
      )}
      <button type="submit" class="primary">
        Open
      </button>
    </form>
  );
}
