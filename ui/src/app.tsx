import { useEffect, useErrorBoundary, useState } from "preact/hooks";

import { refusal } from "./api/token";
import { Asked } from "./parts/ask";
import { Problem } from "./parts/basics";
import { Help, useShortcuts } from "./parts/help";
import { Shell } from "./parts/shell";
import { TokenForm } from "./parts/token";
import { ComparePage } from "./pages/compare/page";
import { FleetPage } from "./pages/fleet/page";
import { QueuesPage } from "./pages/queues/page";
import { GroupPage } from "./pages/rollouts/group";
import { RolloutsPage } from "./pages/rollouts/page";
import { RunPage } from "./pages/run/page";
import { status } from "./state/live";
import { route } from "./state/route";

function CurrentPage() {
  const { page, rest } = route.value;
  switch (page) {
    case "run":
      return <RunPage />;
    case "rollouts":
      return rest.length === 2 ? <GroupPage step={rest[0] ?? ""} index={rest[1] ?? ""} /> : <RolloutsPage />;
    case "fleet":
      return <FleetPage />;
    case "queues":
      return <QueuesPage />;
    case "compare":
      return <ComparePage />;
  }
}

/** What cannot be drawn takes no more than its page along. */
function Guarded({ name }: { name: string }) {
  const [error, reset] = useErrorBoundary((error) => console.error(`the page ${name} cannot be drawn`, error));
  return error ? <Problem words="This page cannot be drawn from the orchestrator's answer." again={reset} /> : <CurrentPage />;
}

export function App() {
  const [isHelp, setHelp] = useState(false);
  useShortcuts(() => setHelp(true));
  const { page } = route.value;
  const name = status.value?.run.name;
  useEffect(() => {
    const title = page.charAt(0).toUpperCase() + page.slice(1);
    document.title = name ? `${title} - ${name} - Headrace` : `${title} - Headrace`;
  }, [page, name]);
  return (
    <>
      <Shell title={name ?? "Run"} current={page} onHelp={() => setHelp(true)}>
        {refusal.value === null ? <Guarded key={page} name={page} /> : <TokenForm />}
      </Shell>
      <Asked />
      {isHelp && <Help onClose={() => setHelp(false)} />}
    </>
  );
}
