import { useEffect, useRef, useState } from "preact/hooks";

import { get, reasonOf } from "../api/client";

export interface Resource<T> {
  data: T | null;
  problem: string;
  reload: () => void;
}

/** Loads an address, again every `every` milliseconds while the page is looked at; old data stays until new is here. */
export function useResource<T>(path: string, every = 0): Resource<T> {
  const [data, setData] = useState<{ path: string; found: T } | null>(null);
  const [problem, setProblem] = useState("");
  const [again, setAgain] = useState(0);
  const isComing = useRef(false);
  const reload = () => setAgain((old) => old + 1);

  useEffect(() => {
    const controller = new AbortController();
    isComing.current = true;
    get<T>(path, {}, controller.signal).then(
      (found) => {
        setData({ path, found });
        setProblem("");
        isComing.current = false;
      },
      (error: unknown) => {
        if (!controller.signal.aborted) {
          setProblem(reasonOf(error));
          isComing.current = false;
        }
      },
    );
    return () => controller.abort();
  }, [path, again]);

  useEffect(() => {
    if (every === 0) {
      return;
    }
    const timer = setInterval(() => {
      // A page that gives a slow answer up to ask again never gets one.
      if (!document.hidden && !isComing.current) {
        reload();
      }
    }, every);
    return () => clearInterval(timer);
  }, [every]);

  return { data: data !== null && data.path === path ? data.found : null, problem, reload };
}
