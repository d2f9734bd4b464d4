import type { Replica } from "../../api/types";

/** What a replica's weights were held against, in words. */
export const PROOFS: Record<string, string> = {
  proven: "All its tensors are what the trainer computed.",
  compared: "Its tensors equal those of the other replicas; the trainer cannot compute all of them.",
  canary: "Only a prompt's logprobs were compared: there is no other replica to compare its tensors with.",
};

type Weights = Partial<Pick<Replica, "route" | "route_reason" | "proof" | "proof_note">>;

/** Such as `over gloo`; empty while no way is known. */
export const wayOf = ({ route }: Weights): string => (route ? (route === "disk" ? "from disk" : `over ${route}`) : "");

/** Why the weights do not come the best way, and why they are not proven. */
export const notesOf = ({ route_reason, proof_note }: Weights): string[] =>
  [route_reason, proof_note].filter((words): words is string => Boolean(words));
