// An episode as a conversation: the policy's turns token by token, and what environment and tools answered.

import { Fragment } from "preact";

import type { Episode, Message, Rollout, Segment } from "../../api/types";
import { count, duration, num, plural } from "../../format";
import { LongText } from "./long";
import type { Mode } from "./shade";
import { TokenText } from "./tokens";

interface Props {
  rollout: Rollout;
  episode: Episode;
  mode: Mode;
  largest: number;
  title: string;
}

export function Conversation({ rollout, episode, mode, largest, title }: Props) {
  const before = (at: number) => episode.messages.slice(0, at).findLast((one) => one.segment != null)?.segment ?? null;
  return (
    <>
      <ol class="conversation" aria-label={`${title}: conversation`}>
        {episode.messages.map((message, at) => {
          const begun = message.segment != null && message.segment !== before(at) ? message.segment : null;
          return (
            <Fragment key={at}>
              {begun !== null && <Context number={begun} segments={episode.segments} />}
              {message.turn != null ? (
                <Turn message={message} rollout={rollout} mode={mode} largest={largest} title={title} />
              ) : (
                <Heard message={message} label={`${title}: message ${at + 1}`} />
              )}
            </Fragment>
          );
        })}
      </ol>
      {episode.error && <p class="verdict">{episode.error}</p>}
      <Given episode={episode} />
    </>
  );
}

/** What the engine saw before a segment's first token. */
function Context({ number, segments }: { number: number; segments: Segment[] }) {
  const one = segments[number];
  if (!one) {
    return null;
  }
  return (
    <li class="segment">
      <details>
        <summary>
          {segments.length > 1 ? `Segment ${number + 1} of ${segments.length}, c` : "C"}ontext of{" "}
          {plural(one.context_tokens, "token")}
        </summary>
        {one.context_text !== null && <LongText class="said-text" text={one.context_text} label={`Context ${number + 1}`} />}
      </details>
    </li>
  );
}

function Turn(props: { message: Message; rollout: Rollout; mode: Mode; largest: number; title: string }) {
  const { message, rollout, mode, largest, title } = props;
  const name = `Turn ${(message.turn ?? 0) + 1}`;
  const [read, start, end] = [message.read_from ?? 0, message.start ?? 0, message.end ?? 0];
  const tokens = rollout.tokens.slice(start, end);
  const shown = { mode, largest, total: rollout.tokens.length };
  const hasText = tokens.length > 0 && tokens.every((token) => token.text !== null);
  const facts = [
    `tokens ${start}\u2013${end} sampled`,
    message.versions?.length ? `version ${message.versions.join(", ")}` : "",
    message.replica_id ?? "",
    message.seconds == null ? "" : duration(message.seconds),
    message.reward == null ? "" : `reward ${num(message.reward)}`,
  ];
  return (
    <li class="message policy">
      {read < start && (
        <details>
          <summary>{plural(start - read, "token")} read before it, masked</summary>
          <TokenText tokens={rollout.tokens.slice(read, start)} first={read} label={`${title}: read before ${name}`} {...shown} />
        </details>
      )}
      <header>
        <strong>{name}, policy</strong> <span class="muted small">{facts.filter(Boolean).join(", ")}</span>
      </header>
      {hasText ? (
        <TokenText tokens={tokens} first={start} label={`${title}: ${name}`} {...shown} />
      ) : (
        <LongText class="said-text" text={message.content} label={`${title}: ${name}`} />
      )}
    </li>
  );
}

/** A message of the environment, or a call of a tool with what came of it. */
function Heard({ message, label }: { message: Message; label: string }) {
  const isCall = Boolean(message.outcome);
  const facts = [
    message.outcome ?? "",
    message.seconds == null ? "" : duration(message.seconds),
    message.cut ? `${count(message.cut)} characters cut` : "",
  ];
  return (
    <li class={`message ${isCall ? "call" : "heard"}`}>
      <header>
        <strong>{isCall ? `Tool ${message.name || "?"}` : message.role}</strong>{" "}
        <span class={`small ${message.outcome === "returned" ? "muted" : isCall ? "warn-ink" : "muted"}`}>
          {facts.filter(Boolean).join(", ")}
        </span>
      </header>
      {message.arguments && <code class="arguments">{message.arguments}</code>}
      {message.content && <LongText class="said-text" text={message.content} label={label} />}
    </li>
  );
}

/** What the environment gave. */
function Given({ episode }: { episode: Episode }) {
  const rows = [
    ["reward", episode.reward] as const,
    ...Object.entries(episode.components),
    ...Object.entries(episode.metrics),
  ].filter(([, value]) => value !== null);
  const turns = `${plural(episode.turns, "turn")}: ${count(episode.sampled_tokens)} tokens sampled, ${count(episode.read_tokens)} read`;
  return (
    <p class="muted small">
      {turns}
      {rows.length > 0 && `. Environment: ${rows.map(([name, value]) => `${name} ${num(value)}`).join(", ")}`}
    </p>
  );
}
