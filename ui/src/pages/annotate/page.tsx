// The annotators' page: one pair after the other, without the rest of the dashboard, which their token does not open.

import { useEffect, useState } from "preact/hooks";

import { refusal } from "../../api/token";
import { Shell } from "../../parts/shell";
import { TokenForm } from "../../parts/token";
import { Judging } from "./judging";

const KEY = "headrace.annotator";

export function AnnotatePage() {
  const [name, setName] = useState(localStorage.getItem(KEY) ?? "");
  useEffect(() => {
    document.title = "Headrace: which answer is better?";
  }, []);
  const keep = (name: string) => {
    localStorage.setItem(KEY, name);
    setName(name);
  };
  const page = name ? <Judging key={name} annotator={name} onRename={() => setName("")} /> : <NameForm onName={keep} />;
  return (
    <Shell title="Which answer is better?" current="annotate">
      {refusal.value === null ? page : <TokenForm />}
    </Shell>
  );
}

function NameForm({ onName }: { onName: (name: string) => void }) {
  const keep = (event: SubmitEvent) => {
    event.preventDefault();
    onName(String(new FormData(event.currentTarget as HTMLFormElement).get("name")).trim());
  };
  return (
    <form class="token-form" id="ask-name" onSubmit={keep} aria-label="Name">
      <h2>Who are you?</h2>
      <p>Your name is stored with your verdicts.</p>
      <label class="field">
        <span>Name</span>
        <input
          id="name-input"
          name="name"
          required
          maxLength={40}
          pattern="\s*[\p{L}\p{M}\p{N}_][\p{L}\p{M}\p{N}_ .@'\-]*"
          title="Letters, digits, spaces and .@'-_"
          autocomplete="nickname"
          spellcheck={false}
          autofocus
        />
      </label>
      <button type="submit" class="primary">
        Begin
      </button>
    </form>
  );
}
