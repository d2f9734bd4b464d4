import { useEffect, useState } from "preact/hooks";

import { address } from "../../api/client";
import type { Group } from "../../api/types";
import { num, plural } from "../../format";
import { Loading, Problem, Segmented } from "../../parts/basics";
import { useResource } from "../../parts/resource";
import { link, route } from "../../state/route";
import { RolloutCard } from "./card";
import { LongText } from "./long";
import { ADVANTAGE_SHADES, largestAdvantage, LOGPROB_SHADES, type Mode } from "./shade";

const MODES: { value: Mode; label: string }[] = [
  { value: "advantage", label: "Advantage" },
  { value: "logprob", label: "Logprob" },
  { value: "plain", label: "Plain" },
];

/** One prompt and all rollouts of it, side by side. */
export function GroupPage({ step, index }: { step: string; index: string }) {
  const { params } = route.value;
  const { rollout, ...filters } = params;
  const back = link("rollouts", [], filters);
  const found = useResource<Group>(
    address(`/api/rollouts/${encodeURIComponent(step)}/${encodeURIComponent(index)}`, { of: params.of }),
  );
  useEffect(() => {
    const leave = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
        location.hash = back;
      }
    };
    document.addEventListener("keydown", leave);
    return () => document.removeEventListener("keydown", leave);
  }, [back]);
  return (
    <>
      <a class="back" href={back}>
        {"\u2190"} All rollouts
      </a>
      {found.data ? (
        <LoadedGroup group={found.data} chosen={rollout} at={params.of === "evaluations" ? "version" : "step"} />
      ) : found.problem ? (
        <Problem words={found.problem} again={found.reload} />
      ) : (
        <Loading what="the group" />
      )}
    </>
  );
}

function LoadedGroup({ group, chosen, at }: { group: Group; chosen: string | undefined; at: string }) {
  const [mode, setMode] = useState<Mode>("advantage");
  const largest = largestAdvantage(group.rollouts.flatMap((one) => one.tokens));
  return (
    <>
      <div class="page-head">
        <h2>{group.group_id}</h2>
        <span class="muted">
          {at} {group.step}, {plural(group.rollouts.length, "rollout")}
        </span>
      </div>
      <section class="card prompt-card" aria-labelledby="prompt-title">
        <h3 id="prompt-title">Prompt</h3>
        <LongText class="said-text" text={group.prompt} label="Prompt" />
        <Columns group={group} />
      </section>
      <div class="toolbar">
        <span class="toolbar-label">Colour tokens by</span>
        <Segmented label="Colour tokens by" value={mode} choices={MODES} onChoose={setMode} />
        <Legend mode={mode} largest={largest} />
      </div>
      <section class="group-cards" aria-label="Rollouts of the group">
        {group.rollouts.map((one) => (
          <RolloutCard
            key={one.rollout_index}
            rollout={one}
            mode={mode}
            largest={largest}
            isChosen={String(one.rollout_index) === chosen}
          />
        ))}
      </section>
    </>
  );
}

const said = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** The reference answer, and the row's other columns folded away. */
function Columns({ group }: { group: Group }) {
  const others = Object.entries(group.columns).filter(([name]) => name !== "answer");
  return (
    <>
      {group.answer && (
        <>
          <h3 id="answer-title">Reference answer</h3>
          <LongText class="said-text" text={group.answer} label="Reference answer" />
        </>
      )}
      {others.length > 0 && (
        <details>
          <summary class="muted small">{plural(others.length, "other column")} of the row</summary>
          <dl class="columns">
            {others.map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{said(value)}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
    </>
  );
}

function Legend({ mode, largest }: { mode: Mode; largest: number }) {
  if (mode === "plain" || (mode === "advantage" && largest === 0)) {
    return <span class="muted small">{mode === "advantage" ? "All advantages of this group are 0" : ""}</span>;
  }
  const shades = mode === "advantage" ? ADVANTAGE_SHADES : LOGPROB_SHADES;
  const [low, high] =
    mode === "advantage" ? [num(-largest), num(largest)] : ["certain", "surprising"];
  return (
    <span class="scale" role="img" aria-label={`From ${low} to ${high}`}>
      <span>{low}</span>
      <span class="scale-steps">
        {shades.map(({ name, label }) => (
          <span key={name} class={name} title={label} />
        ))}
      </span>
      <span>{high}</span>
    </span>
  );
}
