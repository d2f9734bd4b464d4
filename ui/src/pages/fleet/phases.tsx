import type { Phase, Publication } from "../../api/types";
import { seriesColour } from "../../charts/paint";
import { duration } from "../../format";

const WIDTH = 1000;
const HEIGHT = 14;
const LEAST = 2;

/** Names in the order in which phases begin, whichever publications had them. */
export function phasesOf(publications: Publication[]): string[] {
  const all = publications.flatMap((one) => one.phases).toSorted((a, b) => a.from_s - b.from_s);
  return [...new Set(all.map((phase) => phase.phase))];
}

const classOf = (names: string[], phase: string) => seriesColour(names.indexOf(phase)).slice(2);

export function PhaseBar({ phases, names, longest }: { phases: Phase[]; names: string[]; longest: number }) {
  const scale = WIDTH / longest;
  const words = phases.map((one) => `${one.phase} ${duration(one.to_s - one.from_s)}`).join(", ");
  return (
    <svg class="phase-bar" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
      {phases.map((one) => (
        <rect
          key={one.phase}
          class={classOf(names, one.phase)}
          x={one.from_s * scale}
          width={Math.max(LEAST, (one.to_s - one.from_s) * scale - 1)}
          height={HEIGHT}
        >
          <title>{`${one.phase}: ${duration(one.to_s - one.from_s)}`}</title>
        </rect>
      ))}
    </svg>
  );
}

export function PhaseLegend({ names }: { names: string[] }) {
  return (
    <ul class="legend">
      {names.map((name) => (
        <li key={name}>
          <span class={`swatch ${classOf(names, name)}`} aria-hidden="true" />
          <span>{name}</span>
        </li>
      ))}
    </ul>
  );
}
