"""The numbers of a line of `metrics.jsonl`: group, unit, meaning, and whether Prometheus has a gauge of it.

The trainer's gauges, the charts and dialogs of the dashboard and the terminal take these words; a key that is missing
here is written all the same, and shown by its name alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

REWARD, POLICY, CRITIC = "Reward", "Policy", "Critic"
LENGTHS, AGE, MISMATCH = "Lengths", "Staleness", "Engine against trainer"
SPEED, TIME, MEMORY, BATCH = "Speed", "Time", "Memory", "Batch"

T = TypeVar("T")
STALE_SHARE, NO_ANSWER_SHARE = 0.05, 0.5
"""`stale_tokens_share` and `reward_no_answer_share` above which people are warned."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One key, or all keys that begin as one which ends in `*` does."""

    group: str
    unit: str
    """Empty, `share` (0 to 1), or the unit's name."""
    text: str
    """Its meaning, a sentence."""
    gauge: str | None = None
    """End of the name of its gauge, `headrace_trainer_KEY…`; None = the file alone has it."""


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "reward_mean": Metric(REWARD, "", "Mean reward of the batch, as it is trained on.", ""),
        "reward_std": Metric(REWARD, "", "Standard deviation of the batch's rewards.", ""),
        "reward_min": Metric(REWARD, "", "Smallest reward of the batch."),
        "reward_max": Metric(REWARD, "", "Largest reward of the batch."),
        "rewards_left_out": Metric(
            REWARD, "", "Components, and components of a data source, beyond those that are shown."
        ),
        "reward_no_answer_share": Metric(
            REWARD, "share", "Share of completions in which a scorer found no answer where it looks.", ""
        ),
        "abstained": Metric(
            REWARD, "rollouts", "Rollouts of the batch without a score, which are not trained.", "_rollouts"
        ),
        "accuracy": Metric(REWARD, "share", "Share of right answers, or of pairs in the right order."),
        "reward_margin": Metric(REWARD, "", "Mean reward of the chosen less that of the rejected."),
        "advantage_min": Metric(POLICY, "", "Smallest advantage of a trained token."),
        "advantage_max": Metric(POLICY, "", "Largest advantage of a trained token."),
        "loss": Metric(POLICY, "", "Loss that the optimizer minimizes.", ""),
        "grad_norm": Metric(POLICY, "", "Norm of the gradient before clipping.", ""),
        "learning_rate": Metric(POLICY, "", "Learning rate of the policy.", ""),
        "kl": Metric(
            POLICY, "nats", "Divergence from the reference (or from the policy that sampled), per token.", "_nats"
        ),
        "kl_coef": Metric(POLICY, "", "Weight of the KL to the reference."),
        "kl_cut_share": Metric(
            POLICY, "share", "Share of tokens whose k3 estimate of the KL is cut at its limit of 10."
        ),
        "policy_kl": Metric(POLICY, "nats", "Divergence from the policy that sampled, per token."),
        "entropy": Metric(POLICY, "nats", "Mean entropy of the policy at the trained tokens.", "_nats"),
        "entropy_coef": Metric(POLICY, "", "Weight of the entropy bonus."),
        "clip_fraction": Metric(POLICY, "share", "Share of tokens whose gradient was clipped away.", ""),
        "kept_share": Metric(POLICY, "share", "Share of the rollouts that remain in the loss after masking.", ""),
        "correction_weight": Metric(POLICY, "", "Mean weight of the correction."),
        "trust_kl": Metric(
            POLICY, "nats", "TRPO: the KL of the old policy to the new one, a token; 0: no step was taken."
        ),
        "trust_line_steps": Metric(POLICY, "", "TRPO: how many steps the line search tried, each half of the last."),
        "rejected_share": Metric(POLICY, "share", "Share of the tokens that the correction leaves out."),
        "positive_nll_loss": Metric(POLICY, "", "Loss of the likelihood of rewarded rollouts."),
        "skipped": Metric(POLICY, "", "1 if the step changed no weights."),
        "updates": Metric(POLICY, "", "Optimizer steps of the policy."),
        "value_loss": Metric(CRITIC, "", "Loss of the critic.", ""),
        "explained_variance": Metric(CRITIC, "", "Share of the returns' variance that the critic explains.", "_ratio"),
        "critic_grad_norm": Metric(CRITIC, "", "Norm of the critic's gradient before clipping.", ""),
        "critic_learning_rate": Metric(CRITIC, "", "Learning rate of the critic."),
        "completion_length_mean": Metric(LENGTHS, "tokens", "Mean length of the completions.", "_tokens"),
        "completion_length_p95": Metric(LENGTHS, "tokens", "95th percentile of the length."),
        "completion_length_max": Metric(LENGTHS, "tokens", "Largest length."),
        "truncated_share": Metric(LENGTHS, "share", "Share of completions that were cut at the length limit.", ""),
        "trained_length_mean": Metric(LENGTHS, "tokens", "Mean number of trained tokens of a completion.", "_tokens"),
        "trained_length_p95": Metric(LENGTHS, "tokens", "95th percentile of the length.", "_tokens"),
        "trained_length_max": Metric(LENGTHS, "tokens", "Largest length.", "_tokens"),
        "arrived_length_mean": Metric(LENGTHS, "tokens", "Mean length of all completions that arrived.", "_tokens"),
        "arrived_length_p95": Metric(LENGTHS, "tokens", "95th percentile of the length.", "_tokens"),
        "arrived_length_max": Metric(LENGTHS, "tokens", "Largest length.", "_tokens"),
        "staleness_mean": Metric(AGE, "versions", "Mean versions that groups were behind.", "_versions"),
        "staleness_max": Metric(AGE, "versions", "Most versions that a trained token was behind.", "_versions"),
        "token_lag_mean": Metric(AGE, "versions", "Mean versions that trained tokens were behind.", "_versions"),
        "token_lag_p95": Metric(AGE, "versions", "95th percentile of the same.", "_versions"),
        "token_lag_max": Metric(AGE, "versions", "Largest of the same.", "_versions"),
        "groups_stale": Metric(
            AGE, "groups", "Groups dropped as stale, or with a masked token, while the batch was collected.", ""
        ),
        "stale_tokens_share": Metric(AGE, "share", "Share of arrived tokens that were dropped or masked as stale.", ""),
        "logprob_gap_max": Metric(MISMATCH, "nats", "Largest |trainer - engine| logprob of new tokens.", "_nats"),
        "logprob_gap_mean": Metric(MISMATCH, "nats", "Mean |trainer - engine| logprob of new tokens.", "_nats"),
        "logprob_gap_tokens": Metric(MISMATCH, "tokens", "New tokens that were compared."),
        "canary_gap": Metric(
            MISMATCH,
            "nats",
            "Largest |trainer - engine| logprob of the canary of the weights before the step.",
            "_nats",
        ),
        "mismatch_kl_k3": Metric(
            MISMATCH, "nats", "Estimated KL(engine || trainer) per token, staleness included.", "_nats"
        ),
        "mismatch_ess": Metric(MISMATCH, "share", "Effective share of the tokens under importance weights.", "_ratio"),
        "kept_ids_mean": Metric(MISMATCH, "ids", "Ids that a token was drawn from, where sampling is cut off: mean."),
        "kept_ids_single_share": Metric(MISMATCH, "share", "Share of tokens that were drawn from a single id."),
        "kept_ids_token_bytes": Metric(MISMATCH, "bytes", "Bytes of these ids for each token."),
        "groups": Metric(BATCH, "groups", "Groups of the batch."),
        "groups_discarded": Metric(
            BATCH, "groups", "Groups discarded as uninformative while the batch was collected.", ""
        ),
        "rollouts": Metric(BATCH, "rollouts", "Rollouts of the batch that have a score."),
        "prompt_tokens": Metric(BATCH, "tokens", "Tokens of the contexts: prompts, and what episodes read."),
        "completion_tokens": Metric(BATCH, "tokens", "Sampled tokens of the batch."),
        "trained_tokens": Metric(BATCH, "tokens", "Tokens that entered the update's loss."),
        "generated_tokens": Metric(
            BATCH,
            "tokens",
            "Sampled tokens of all groups consumed for the step: trained, dropped, and greedy baselines.",
        ),
        "incarnation": Metric(BATCH, "", "Life of the trainer that wrote the line."),
        "trained_tokens_per_second": Metric(SPEED, "tokens/s", "Trained tokens over the time from step to step."),
        "generated_tokens_per_second": Metric(SPEED, "tokens/s", "Generated tokens over the time from step to step."),
        "trained_tokens_per_second_per_gpu": Metric(SPEED, "tokens/s", "The same over the trainer's GPUs."),
        "generated_tokens_per_second_per_gpu": Metric(
            SPEED, "tokens/s", "The same over the GPUs of the live replicas."
        ),
        "model_flops": Metric(SPEED, "FLOP", "Model FLOPs of the policy's update."),
        "mfu": Metric(
            SPEED, "share", "Model FLOPs of the update over what the trainer's GPUs could do in the whole step."
        ),
        "mfu_train": Metric(SPEED, "share", "The same, of the time of training alone."),
        "seconds": Metric(TIME, "seconds", "The step without the wait for its batch."),
        "interval_seconds": Metric(TIME, "seconds", "From the end of one step to the end of the next."),
        "train_seconds": Metric(TIME, "seconds", "Training alone."),
        "wait_batch_seconds": Metric(TIME, "seconds", "Without a whole batch."),
        "wait_batch_share": Metric(TIME, "share", "Share of the time without a whole batch."),
        "peak_device_memory_bytes": Metric(
            MEMORY, "bytes", "The most that torch held in tensors on a GPU, of all ranks."
        ),
        "peak_device_memory_reserved_bytes": Metric(MEMORY, "bytes", "The most that torch reserved on a GPU."),
        "peak_host_memory_bytes": Metric(MEMORY, "bytes", "The largest resident set of a trainer's process."),
        "rewards/*": Metric(
            REWARD,
            "",
            "A component, or one of a data source: mean, deviation, share of abstentions, its part in the reward.",
        ),
        "phase_seconds_*": Metric(TIME, "seconds", "A phase of the step."),
        "mismatch_*": Metric(MISMATCH, "", "Engine against trainer over all tokens, staleness included."),
        "lag*": Metric(MISMATCH, "", "The same for the tokens of one lag."),
    }
)
_FAMILIES = tuple(name for name in METRICS if name.endswith("*"))
_MEAN = re.compile("rewards/([^/]+)/mean")


def component_means(numbers: Mapping[str, T]) -> dict[str, T]:
    """Component -> its mean, of the numbers of a step."""
    return {found[1]: value for key, value in numbers.items() if (found := _MEAN.fullmatch(key))}


def metric_of(key: str) -> Metric | None:
    """The metric, or the family, that a key of a line belongs to; None for one that the table lacks."""
    family = next((name for name in _FAMILIES if key.startswith(name[:-1])), "")
    return METRICS.get(key) or METRICS.get(family)
