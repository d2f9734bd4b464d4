import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { paint } from "../state/theme";
import { options, type Line, type Zoom } from "./options";
import type { Aligned } from "./points";

interface Props {
  lines: Line[];
  data: Aligned;
  label: string;
  sync: string;
  range: Zoom | null;
  height: number;
  isStacked: boolean;
  isLog: boolean;
  format: (value: number | null) => string;
  formatX: (value: number) => string;
  onZoom: (zoom: Zoom | null) => void;
  onPick: (x: number) => void;
  onCursor: (x: number | null) => void;
}

const tabular = ({ x, ys }: Aligned) => [x, ...ys] as uPlot.AlignedData;

/** One uPlot: built anew where its lines or the theme change, fed with data otherwise. */
export function Plot(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useRef(props);
  now.current = props;
  const shape = JSON.stringify([props.lines, props.isStacked, props.isLog, props.height, paint.value]);

  useLayoutEffect(() => {
    const place = box.current;
    if (place === null) {
      return;
    }
    const { lines, data, sync, height, isStacked, isLog } = now.current;
    const made = new uPlot(
      options(
        {
          lines,
          isStacked,
          isLog,
          sync,
          format: (value) => now.current.format(value),
          formatX: (value) => now.current.formatX(value),
          range: () => now.current.range,
          onZoom: (zoom) => now.current.onZoom(zoom),
          onPick: (x) => now.current.onPick(x),
          onCursor: (step) => now.current.onCursor(step),
        },
        place.clientWidth,
        height,
      ),
      tabular(data),
      place,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height }));
    observer.observe(place);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(tabular(props.data));
  }, [props.data, props.range?.from, props.range?.to]);

  return <div class="plot" ref={box} role="img" aria-label={props.label} />;
}
