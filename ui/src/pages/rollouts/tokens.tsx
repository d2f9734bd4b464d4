import { useRef, useState } from "preact/hooks";

import type { Token } from "../../api/types";
import { num, percent } from "../../format";
import { type Mode, shadeOf } from "./shade";

interface Place {
  at: number;
  left: number;
  top: number;
}

/** A rollout's text, token by token: the mouse or the arrow keys tell of each. */
export function TokenText(props: { tokens: Token[]; mode: Mode; largest: number; label: string }) {
  const { tokens, mode, largest, label } = props;
  const box = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState<Place | null>(null);
  const show = (at: number) => {
    const [token, around] = [box.current?.querySelector<HTMLElement>(`[data-token="${at}"]`), box.current];
    if (token && around) {
      const left = Math.min(token.offsetLeft, Math.max(0, around.clientWidth - 208));
      setPlace({ at, left, top: token.offsetTop + token.offsetHeight + 4 });
    }
  };
  const point = (event: MouseEvent) => {
    const at = event.target instanceof HTMLElement ? event.target.dataset.token : undefined;
    if (at !== undefined) {
      show(Number(at));
    }
  };
  const press = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      show(Math.min(tokens.length - 1, Math.max(0, (place?.at ?? -1) + by)));
    }
  };
  const token = place === null ? undefined : tokens[place.at];
  return (
    <div
      class="token-text"
      ref={box}
      tabindex={0}
      role="group"
      aria-label={`${label}: arrow keys go from token to token`}
      onMouseOver={point}
      onMouseLeave={() => setPlace(null)}
      onKeyDown={press}
      onBlur={() => setPlace(null)}
    >
      {tokens.map((one, at) => (
        <span
          key={at}
          data-token={at}
          class={`token ${shadeOf(one, mode, largest)} ${place?.at === at ? "at" : ""}`}
        >
          {one.text}
        </span>
      ))}
      {token && place && <Tip token={token} place={place} total={tokens.length} />}
    </div>
  );
}

function Tip({ token, place, total }: { token: Token; place: Place; total: number }) {
  const put = (tip: HTMLElement | null) => {
    tip?.style.setProperty("left", `${place.left}px`);
    tip?.style.setProperty("top", `${place.top}px`);
  };
  const probability = token.logprob === null ? null : Math.exp(token.logprob);
  return (
    <div class="tip" ref={put} role="status">
      <strong>{JSON.stringify(token.text)}</strong>
      <dl>
        <dt>token</dt>
        <dd>
          {place.at + 1} of {total}, id {token.id}
        </dd>
        <dt>logprob</dt>
        <dd>
          {num(token.logprob)} ({percent(probability, 1)})
        </dd>
        <dt>advantage</dt>
        <dd>{num(token.advantage)}</dd>
      </dl>
    </div>
  );
}
