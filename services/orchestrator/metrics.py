"""Every metric the orchestrator emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS_ISSUED = Counter("headrace_orchestrator_groups_issued", "Groups put on the prompts stream.", ["kind"])
GROUPS_ENDED = Counter("headrace_orchestrator_groups_ended", "Groups with a fate.", ["fate"])
GROUPS_OPEN = Gauge("headrace_orchestrator_groups_open", "Groups issued and neither trained nor dropped.")
CREDIT_LIMIT = Gauge("headrace_orchestrator_credit_limit_groups", "Most groups that may be open now.")
REPLICAS = Gauge("headrace_orchestrator_replicas", "Replicas with a live lease.", ["state"])
POLICY_VERSION = Gauge("headrace_orchestrator_policy_version", "Steps done by the trainer.")
INCARNATION = Gauge("headrace_orchestrator_incarnation", "Life of the trainer.")
PUBLICATION_SECONDS = Histogram("headrace_orchestrator_publication_seconds", "One phase of a publication.", ["phase"])
PUBLICATION_OUTCOMES = Counter("headrace_orchestrator_publication_outcomes", "A replica's end of one.", ["outcome"])
EVAL_ACCURACY = Gauge("headrace_orchestrator_eval_accuracy_ratio", "Share of held-out rollouts that are correct.")
STREAM_LENGTH = Gauge("headrace_orchestrator_stream_entries", "Entries on a stream.", ["stream"])
STREAM_PENDING = Gauge("headrace_orchestrator_stream_pending_entries", "Entries taken and not acked.", ["stream"])
STREAM_OLDEST = Gauge("headrace_orchestrator_stream_oldest_pending_seconds", "Idle time of the oldest.", ["stream"])
EVENT_LOOP_LAG = Gauge("headrace_orchestrator_event_loop_lag_seconds", "How late a timer of the loop fired.")
ANNOTATION_VOTES = Counter("headrace_orchestrator_annotation_votes", "Votes of annotators on pairs.", ["choice"])
