// Two answers to one prompt, and the verdict. An act is sent until it is kept; meanwhile nothing else can be done.

import { useEffect, useState } from "preact/hooks";

import { get, post, reasonOf, Refused } from "../../api/client";
import type { AnnotatedSide, AnnotationTurn } from "../../api/types";
import { Empty } from "../../parts/basics";

const KEYS: Record<string, string> = {
  1: "choose-left", ArrowLeft: "choose-left", 2: "choose-right", ArrowRight: "choose-right",
  t: "choose-tie", s: "choose-skip", u: "undo",
};
const VERDICTS = [
  { choice: "left", key: "1", label: "Answer 1" },
  { choice: "tie", key: "t", label: "Tie" },
  { choice: "skip", key: "s", label: "Skip" },
  { choice: "right", key: "2", label: "Answer 2" },
];
const AGAIN_MS = 1_500;
const LOOK_MS = 4_000;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function press(event: KeyboardEvent): void {
  const id = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (id && !event.repeat && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById(id)?.click();
  }
}

function useTurn(annotator: string) {
  const [turn, setTurn] = useState<AnnotationTurn | null>(null);
  const [notice, setNotice] = useState("");
  const [isBusy, setBusy] = useState(false);
  const next = () => get<AnnotationTurn>("/api/annotation/next", { annotator });

  /** Sends until there is an answer; an act that is refused for good is followed by the next pair. */
  const send = async (ask: () => Promise<AnnotationTurn>) => {
    setBusy(true);
    for (let refused = ""; ; ) {
      try {
        setTurn(await ask());
        setNotice(refused);
        break;
      } catch (error) {
        if (error instanceof Refused && !error.isPassing) {
          setNotice(error.message);
          if (refused || ask === next) {
            break;
          }
          refused = error.message;
          ask = next;
        } else {
          setNotice(`${ask === next ? "Not loaded yet" : "Your verdict is not saved yet"}: ${reasonOf(error)} Trying again.`);
          await pause(AGAIN_MS);
        }
      }
    }
    setBusy(false);
  };

  useEffect(() => void send(next), []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (turn?.pair === null && !isBusy && !document.hidden) {
        void send(next);
      }
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, [turn, isBusy]);
  return { turn, notice, isBusy, send };
}

export function Judging({ annotator, onRename }: { annotator: string; onRename: () => void }) {
  const { turn, notice, isBusy, send } = useTurn(annotator);
  useEffect(() => {
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  const pair = turn?.pair ?? null;
  const undo = turn?.undo ?? null;
  const act = (path: string, body: Record<string, unknown>) => {
    window.scrollTo({ top: 0 });
    void send(() => post<AnnotationTurn>(`/api/annotation/${path}`, { annotator, ...body }));
  };
  return (
    <>
      <div class="page-head">
        <span id="counts" class="muted tabular">
          {turn ? `${turn.judged} judged by you` : ""}
        </span>
        <button type="button" id="who" class="link" onClick={onRename} disabled={isBusy} title="Change the name">
          {annotator}
        </button>
      </div>
      <p id="notice" class="reason" role="status" hidden={!notice}>
        {notice}
      </p>
      {pair && (
        <section class="card prompt-card" aria-label="Prompt" id="prompt">
          {pair.prompt.map(({ role, content }, at) => (
            <div key={at}>
              {role !== "prompt" && <h3>{role}</h3>}
              <div class="said-text" dir="auto" tabIndex={0}>
                {content}
              </div>
            </div>
          ))}
        </section>
      )}
      {pair && (
        <div class="answers">
          <Answer id="left" title="Answer 1" side={pair.left} />
          <Answer id="right" title="Answer 2" side={pair.right} />
        </div>
      )}
      {turn && !pair && (
        <div id="idle">
          <Empty title="Nothing to judge now">Pairs appear when a step of the run has been trained.</Empty>
        </div>
      )}
      <nav class="verdicts" aria-label="Your verdict">
        {VERDICTS.map(({ choice, key, label }) => (
          <button
            key={choice}
            type="button"
            id={`choose-${choice}`}
            class={label.startsWith("Answer") ? "primary" : ""}
            aria-keyshortcuts={key}
            disabled={isBusy || !pair}
            onClick={() => act("votes", { pair: pair?.id, choice })}
          >
            <kbd>{key}</kbd> {label}
          </button>
        ))}
        <button
          type="button"
          id="undo"
          aria-keyshortcuts="u"
          disabled={isBusy || undo === null}
          onClick={() => act("undo", { pair: undo })}
        >
          <kbd>u</kbd> Undo
        </button>
      </nav>
    </>
  );
}

function Answer({ id, title, side }: { id: string; title: string; side: AnnotatedSide }) {
  return (
    <article class="card" id={id} aria-label={title}>
      <header class="card-head">
        <h2>{title}</h2>
        {side.truncated && <span class="pill warn">cut off at the limit</span>}
      </header>
      <div class="text said-text" dir="auto">
        {side.text}
      </div>
    </article>
  );
}
