import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Token } from "../../api/types";
import { num, percent } from "../../format";
import { useLong } from "./long";
import { type Mode, shadeOf } from "./shade";

interface Place {
  at: number;
  /** What the tip's style has: top or bottom is `auto`. */
  left: string;
  top: string;
  bottom: string;
}

const TIP = { width: 216, height: 112 };
const GAP = 6;

/** Where the tip stands in the window: under the token, or over it where there is no room. */
function besides(token: DOMRect): Omit<Place, "at"> {
  const hasRoom = token.bottom + GAP + TIP.height < window.innerHeight;
  return {
    left: `${Math.max(0, Math.min(token.left, window.innerWidth - TIP.width))}px`,
    top: hasRoom ? `${token.bottom + GAP}px` : "auto",
    bottom: hasRoom ? "auto" : `${window.innerHeight - token.top + GAP}px`,
  };
}

interface TokenProps {
  tokens: Token[];
  mode: Mode;
  largest: number;
  label: string;
  /** How many of the first are thoughts. */
  thoughts?: number;
  /** Place of the first in the rollout, which has `total`, where they are a part of it. */
  first?: number;
  total?: number;
}

/** A rollout's text, token by token: the mouse or the arrow keys show the details of each. */
export function TokenText(props: TokenProps) {
  const { tokens, mode, largest, label, thoughts = 0, first = 0, total = tokens.length } = props;
  const box = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState<Place | null>(null);
  const { shown, more } = useLong(tokens.length, "tokens");
  // Made once: there may be 30,000 of them, and the mouse goes from one to the next.
  const texts = useMemo(
    () => (
      <>
        {tokens.slice(0, shown).map((one, at) => (
          <span key={at} data-token={at} class={`token ${shadeOf(one, mode, largest)}${at < thoughts ? " thought" : ""}`}>
            {one.text}
          </span>
        ))}
      </>
    ),
    [tokens, shown, mode, largest, thoughts],
  );
  useLayoutEffect(() => {
    const chosen = box.current?.querySelector(`[data-token="${place?.at}"]`);
    chosen?.classList.add("at");
    return () => chosen?.classList.remove("at");
  }, [place?.at, texts]);
  const show = (at: number) => {
    const token = box.current?.querySelector(`[data-token="${at}"]`);
    if (token) {
      token.scrollIntoView({ block: "nearest" });
      setPlace({ at, ...besides(token.getBoundingClientRect()) });
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
      show(Math.min(shown - 1, Math.max(0, (place?.at ?? -1) + by)));
    }
  };
  const token = place === null ? undefined : tokens[place.at];
  return (
    <>
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
        onWheel={() => setPlace(null)}
      >
        {texts}
      </div>
      {token && place && <Tip token={token} place={place} number={first + place.at + 1} total={total} />}
      {more}
    </>
  );
}

function Tip({ token, place, number, total }: { token: Token; place: Place; number: number; total: number }) {
  const put = (tip: HTMLElement | null) => {
    const { left, top, bottom } = place;
    Object.assign(tip?.style ?? {}, { left, top, bottom });
  };
  const probability = token.logprob === null ? null : Math.exp(token.logprob);
  return (
    <div class="tip" ref={put} role="status">
      <strong>{JSON.stringify(token.text)}</strong>
      <dl>
        <dt>token</dt>
        <dd>
          {number} of {total}, id {token.id}
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
