import { useLayoutEffect, useRef } from "preact/hooks";

import type { Rollout } from "../../api/types";
import { num, plural, versionWords } from "../../format";
import { Conversation } from "./conversation";
import { LongText } from "./long";
import type { Mode } from "./shade";
import { TokenText } from "./tokens";

interface Props {
  rollout: Rollout;
  mode: Mode;
  largest: number;
  isChosen: boolean;
}

/** How many of its tokens are thoughts: all of them where a thought never closed. */
function thoughtsOf({ tokens, answer_start: start }: Rollout): number {
  if (!start || start < 0) {
    return start ? tokens.length : 0;
  }
  let length = 0;
  const first = tokens.findIndex((token) => (length += [...(token.text ?? "")].length) > start);
  return first < 0 ? tokens.length : first;
}

const signOf = (value: number | null) => (value === null || value === 0 ? "" : value > 0 ? "plus" : "minus");

export function RolloutCard({ rollout, mode, largest, isChosen }: Props) {
  const place = useRef<HTMLElement>(null);
  const title = `Rollout ${rollout.rollout_index ?? ""}`;
  const hasText = rollout.tokens.length > 0 && rollout.tokens.every((token) => token.text !== null);
  useLayoutEffect(() => {
    if (isChosen && (rollout.rollout_index ?? 0) > 0) {
      place.current?.scrollIntoView({ block: "nearest" });
    }
  }, [isChosen]);
  return (
    <article ref={place} class={`card rollout ${isChosen ? "chosen" : ""}`} aria-label={title}>
      <header>
        <h3>{title}</h3>
        <dl class="facts">
          <div>
            <dt>reward</dt>
            <dd>{num(rollout.reward)}</dd>
          </div>
          <div>
            <dt>advantage</dt>
            <dd class={signOf(rollout.advantage)}>{num(rollout.advantage)}</dd>
          </div>
        </dl>
      </header>
      {rollout.episode ? (
        <Conversation rollout={rollout} episode={rollout.episode} mode={mode} largest={largest} title={title} />
      ) : hasText ? (
        <TokenText tokens={rollout.tokens} mode={mode} largest={largest} label={title} thoughts={thoughtsOf(rollout)} />
      ) : (
        <LongText class="token-text" text={rollout.completion} label={title} />
      )}
      {!hasText && (!rollout.episode || rollout.tokens.length > 0) && <p class="muted small note">The tokens' texts are not known: there is no tokenizer beside the run.</p>}
      {rollout.reason && <p class="verdict">{rollout.reason}</p>}
      <Components rollout={rollout} />
      <Origin rollout={rollout} />
    </article>
  );
}

function Components({ rollout }: { rollout: Rollout }) {
  const names = Object.keys(rollout.components);
  if (names.length === 0) {
    return null;
  }
  return (
    <table class="plain-table components">
      <thead>
        <tr>
          <th scope="col">Component</th>
          <th scope="col" class="number">
            Score
          </th>
          <th scope="col" class="number">
            Scorer
          </th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <td>{name}</td>
            <td class="number">{num(rollout.components[name])}</td>
            <td class="number muted">{rollout.scorers[name] ? `version ${rollout.scorers[name]}` : ""}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Where the rollout is from: which replica, which versions made which tokens. */
function Origin({ rollout }: { rollout: Rollout }) {
  const spans = rollout.spans.map((one) => `${one.start}\u2013${one.end} by version ${versionWords(one.version)}`).join(", ");
  return (
    <p class="origin muted small">
      {plural(rollout.num_tokens ?? rollout.tokens.length, "token")}, ended by {rollout.finish_reason}, on {rollout.replica_id}
      {spans && `; tokens ${spans}`}
    </p>
  );
}
