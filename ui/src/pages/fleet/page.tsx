import type { Fleet } from "../../api/types";
import { Loading, Problem } from "../../parts/basics";
import { useResource } from "../../parts/resource";
import { hasEnded, status } from "../../state/live";
import { Environments } from "./environments";
import { Publications } from "./publications";
import { Replicas } from "./replicas";
import { Services } from "./services";
import { TrainerCard } from "./trainer";

const EVERY_MS = 2_000;

export function FleetPage() {
  const found = useResource<Fleet>("/api/fleet", EVERY_MS);
  if (found.data === null) {
    return found.problem ? <Problem words={found.problem} again={found.reload} /> : <Loading what="the fleet" />;
  }
  const view = status.value;
  const addresses = new Map(found.data.replicas.map((replica) => [replica.id, replica.address]));
  return (
    <>
      {found.problem && <Problem words={found.problem} again={found.reload} />}
      {view && !hasEnded.value && <Services view={view} />}
      {view && <TrainerCard view={view} />}
      {view && <Replicas addresses={addresses} view={view} onDone={found.reload} />}
      {view && <Environments view={view} />}
      <Publications publications={found.data.publications} />
    </>
  );
}
