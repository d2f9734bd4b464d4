"""Every metric the trainer emits, declared once."""

from prometheus_client import Counter, Gauge, Histogram

STEPS = Counter("headrace_trainer_steps", "Optimizer steps done in this life, replayed ones included.")
STEPS_SKIPPED = Counter(
    "headrace_trainer_steps_skipped", "Steps whose gradient was not finite: the weights were left alone."
)
STEP_SECONDS = Histogram("headrace_trainer_step_seconds", "One optimizer step, wait for its batch excluded.")
WAIT_BATCH_SECONDS = Histogram("headrace_trainer_wait_batch_seconds", "Wait for a batch.")
TRAINED_TOKENS = Counter("headrace_trainer_trained_tokens", "Completion tokens that were in a step.")
TRAINED_GROUPS = Counter("headrace_trainer_trained_groups", "Groups that were in a step.")
GROUPS_DROPPED = Counter("headrace_trainer_groups_dropped", "Groups that will never be trained.", ["reason"])
DUPLICATES = Counter("headrace_trainer_duplicate_groups", "Entries of groups that had come before.")
GROUPS_READY = Gauge("headrace_trainer_groups_ready", "Groups that wait for their batch.")
BATCH_STALENESS = Histogram(
    "headrace_trainer_batch_staleness_versions", "Policy versions behind, per group.", buckets=(0, 1, 2, 4, 8, 16)
)
LOGPROB_GAP = Gauge(
    "headrace_trainer_logprob_gap_max_nats", "Largest |trainer - engine| logprob of the last step's new tokens."
)
REWARD_MEAN = Gauge("headrace_trainer_reward_mean", "Mean reward of the last batch.")
LOSS = Gauge("headrace_trainer_loss", "Loss of the last step.")
GRAD_NORM = Gauge("headrace_trainer_grad_norm", "Norm of the last step's gradient before clipping.")
STEP = Gauge("headrace_trainer_step", "Each number of the last step, as in metrics.jsonl.", ["name"])
POLICY_VERSION = Gauge("headrace_trainer_policy_version", "Version of the weights.")
INCARNATION = Gauge("headrace_trainer_incarnation", "Number of this life.")
CHECKPOINT_SECONDS = Histogram("headrace_trainer_checkpoint_seconds", "Writing of one checkpoint.")
SNAPSHOT_SECONDS = Histogram("headrace_trainer_snapshot_seconds", "Copy of the weights that a publication sends.")
SENT_BYTES = Counter("headrace_trainer_sent_weights_bytes", "Weights sent over collective groups.")
SEND_SECONDS = Histogram("headrace_trainer_send_weights_seconds", "One transfer over a collective group.")
PUBLICATION_SECONDS = Histogram("headrace_trainer_publication_seconds", "One publication as the trainer sees it.")
