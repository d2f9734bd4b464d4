import { hasToken, keepToken, refusal } from "../api/token";

/** Stands in place of a page until there is a token that may read the run. */
export function TokenForm() {
  const keep = (event: SubmitEvent) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget as HTMLFormElement).get("token");
    if (typeof token === "string" && token.trim()) {
      keepToken(token.trim());
      location.reload();
    }
  };
  return (
    <form class="token-form" onSubmit={keep} aria-label="Token">
      <h2>This run asks for a token</h2>
      <p>
        <code>headrace dashboard RUN_DIR</code> prints a link that has it. Or paste the token of a viewer or an operator.
      </p>
      <label class="field">
        <span>Token</span>
        <input name="token" type="password" required autocomplete="off" spellcheck={false} autofocus />
      </label>
      {hasToken() && (
        <p class="said bad" role="alert">
          The token of this tab is refused: {refusal.value}
        </p>
      )}
      <button type="submit" class="primary">
        Open
      </button>
    </form>
  );
}
