// Acts ask once, then show what was said.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

import { act, reasonOf, Refused } from "../api/client";
import { isToken, keepToken, NO_TOKEN } from "../api/token";
import { Dialog } from "./dialog";

export interface NumberInput {
  name: string;
  label: string;
  value: number;
  least: number;
  most: number;
}

export interface Act {
  title: string;
  /** What will happen. */
  words: string;
  /** The button that does it. */
  verb: string;
  path: string;
  body?: Record<string, unknown>;
  number?: NumberInput;
  isGrave?: boolean;
  onDone?: () => void;
}

const asked = signal<Act | null>(null);

export function ask(act: Act): void {
  asked.value = act;
}

type Answer = { said: string } | { refused: string; needsToken: boolean };

/** `token`: typed for this act; one that was wrong must not take the place of the tab's, which still reads the run. */
async function send(asked: Act, number: number, token?: string): Promise<Answer> {
  if (token !== undefined && !isToken(token)) {
    return { refused: NO_TOKEN, needsToken: true };
  }
  try {
    const body = { ...asked.body, ...(asked.number ? { [asked.number.name]: number } : {}) };
    const said = await act(asked.path, body, token);
    if (token !== undefined) {
      keepToken(token);
    }
    asked.onDone?.();
    return { said };
  } catch (error) {
    return { refused: reasonOf(error), needsToken: error instanceof Refused && error.needsToken };
  }
}

export function Asked() {
  return asked.value && <AskDialog key={asked.value.path} act={asked.value} />;
}

function AskDialog({ act }: { act: Act }) {
  const [number, setNumber] = useState(act.number?.value ?? 0);
  const [isBusy, setBusy] = useState(false);
  const [isTokenAsked, setTokenAsked] = useState(false);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const close = () => {
    asked.value = null;
  };
  const confirm = async (event: SubmitEvent) => {
    event.preventDefault();
    const typed = new FormData(event.currentTarget as HTMLFormElement).get("token");
    setBusy(true);
    const found = await send(act, number, typeof typed === "string" ? typed.trim() : undefined);
    setAnswer(found);
    setBusy(false);
    // Once asked for, it stays: an act that fails for another reason is tried again with the same token.
    setTokenAsked((before) => before || ("refused" in found && found.needsToken));
  };
  const isDone = answer !== null && "said" in answer;
  return (
    <Dialog title={act.title} onClose={close}>
      <form onSubmit={confirm}>
        {!isDone && <p>{act.words}</p>}
        {act.number && !isDone && <Count input={act.number} value={number} onInput={setNumber} />}
        {isTokenAsked && !isDone && <TokenField />}
        <p class={isDone ? "said good" : "said bad"} role="status" hidden={answer === null}>
          {answer === null ? "" : "said" in answer ? answer.said : answer.refused}
        </p>
        <div class="dialog-actions">
          <button type="button" onClick={close} autofocus={isDone || act.isGrave === true}>
            {isDone ? "Close" : "Cancel"}
          </button>
          {!isDone && (
            <button type="submit" class={act.isGrave ? "grave" : "primary"} disabled={isBusy}>
              {isBusy ? "Sending" : act.verb}
            </button>
          )}
        </div>
      </form>
    </Dialog>
  );
}

function Count({ input, value, onInput }: { input: NumberInput; value: number; onInput: (value: number) => void }) {
  return (
    <label class="field">
      <span>{input.label}</span>
      <input
        type="number"
        required
        min={input.least}
        max={input.most}
        value={Number.isNaN(value) ? "" : value}
        onInput={(event) => onInput(event.currentTarget.valueAsNumber)}
      />
    </label>
  );
}

function TokenField() {
  return (
    <label class="field">
      <span>Operator token</span>
      <input name="token" type="password" required autocomplete="off" spellcheck={false} />
    </label>
  );
}
