"""Is the run learning, how fast, and what waits for what?"""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row
from deploy.grafana.queries import RUN, RUN_VARIABLE, increase, largest, of_run, quantile, rate, recorded

_HEAD = Row(
    "Now",
    Panel(
        "Step",
        "Steps done, and how many the run is to have.",
        of_run("headrace_orchestrator_policy_version", "done"),
        of_run("headrace_orchestrator_max_steps", "of"),
        kind="stat",
        width=8,
    ),
    Panel(
        "State",
        "What the run is at: starting, running, finished, stopped or failed.",
        Query(f"max by (run, phase) (headrace_orchestrator_run_phase{{{RUN}}} == 1)", "{{run}} {{phase}}"),
        kind="stat",
        text="name",
        width=8,
    ),
    Panel(
        "Since the last step",
        "The alert HeadraceNoStep fires after three medians of the time between steps.",
        recorded("run:headrace_since_last_step_seconds", "last"),
        recorded("run:headrace_step_interval_seconds:median", "median"),
        kind="stat",
        width=8,
        unit="s",
    ),
    height=4,
)

_LEARNING = Row(
    "Learning",
    Panel(
        "Reward of the batch",
        "Mean and standard deviation. A deviation of 0 leaves nothing to learn from.",
        of_run("headrace_trainer_reward_mean", "mean"),
        of_run("headrace_trainer_reward_std", "deviation"),
    ),
    Panel(
        "Components of the reward",
        "Mean of each scorer, its parts, token scores and what the trainer adds, of the last step.",
        largest("headrace_trainer_reward_component", "component", "{{run}} {{component}}"),
    ),
    Panel(
        "Evaluation",
        "On held-out prompts, by set and measure: accuracy, pass@k, avg@k and mean reward.",
        largest("headrace_orchestrator_eval_result", "set, measure", "{{set}} {{measure}}"),
    ),
    Panel(
        "Loss and gradient",
        "A gradient norm that climbs for long announces a collapse; skipped: it was not finite.",
        of_run("headrace_trainer_loss", "loss"),
        of_run("headrace_trainer_grad_norm", "gradient norm"),
        increase("headrace_trainer_steps_skipped_total", "replica", "skipped", where=RUN),
    ),
    Panel(
        "KL and entropy",
        "Nats a token. Entropy of 0 ends exploration; KL that runs away leaves the reference.",
        of_run("headrace_trainer_kl_nats", "KL"),
        of_run("headrace_trainer_entropy_nats", "entropy"),
        unit="none",
    ),
    Panel(
        "Clipped, kept, truncated",
        "Tokens cut off by the clip; rollouts that masks left in; completions cut for their length.",
        of_run("headrace_trainer_clip_fraction", "clipped"),
        of_run("headrace_trainer_kept_share", "kept"),
        of_run("headrace_trainer_truncated_share", "truncated"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Completion length",
        "Tokens, trained and arrived. Trained below arrived: the bound on staleness filters by length.",
        of_run("headrace_trainer_trained_length_mean_tokens", "trained, mean"),
        of_run("headrace_trainer_arrived_length_mean_tokens", "arrived, mean"),
        of_run("headrace_trainer_trained_length_max_tokens", "trained, longest"),
        of_run("headrace_trainer_arrived_length_max_tokens", "arrived, longest"),
        unit="none",
    ),
)

_TRUST = Row(
    "Is what is trained what was sampled?",
    Panel(
        "Trainer against engine",
        "|difference| of logprobs, nats, on tokens of the newest version (none in steps without one) and on the "
        "canary of each publication: rounding, if all is well.",
        of_run("headrace_trainer_logprob_gap_mean_nats", "mean"),
        of_run("headrace_trainer_logprob_gap_max_nats", "largest"),
        of_run("headrace_trainer_canary_gap_nats", "canary, largest"),
        unit="none",
        bad_above=0.05,
    ),
    Panel(
        "Staleness",
        'Versions that trained tokens were behind; above run.max_staleness with run.stale = "late" alone.',
        of_run("headrace_trainer_staleness_mean_versions", "mean"),
        quantile(0.95, "headrace_trainer_staleness_versions", "replica", "95 %", where=RUN),
        of_run("headrace_orchestrator_max_staleness_versions", "allowed"),
        unit="none",
    ),
)

_PER_STEP = f'sum by (run) (rate(headrace_trainer_step_seconds_count{{{RUN}, phase="train"}}[$__rate_interval]))'
_SPEED = Row(
    "Speed",
    Panel(
        "A step by phase",
        "Mean seconds of what the trainer is at, from the end of one step to the end of the next.",
        Query(
            f"sum by (run, phase) (rate(headrace_trainer_phase_seconds_total{{{RUN}}}[$__rate_interval]))"
            f" / on (run) group_left {_PER_STEP}",
            "{{phase}}",
        ),
        unit="s",
        stacked=True,
    ),
    Panel(
        "Who waits",
        "The trainer without a batch, replicas without a prompt. Scale the side that does not wait.",
        of_run("headrace_trainer_waiting_ratio", "trainer"),
        Query(f"avg by (run) (headrace_rollout_waiting_ratio{{{RUN}}})", "replicas"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Groups under way",
        "Open ones (no fate yet) stay within the credit; ready ones wait in the trainer for a batch.",
        of_run("headrace_orchestrator_groups_open", "open"),
        of_run("headrace_orchestrator_credit_limit_groups", "credit"),
        of_run("headrace_trainer_groups_ready", "ready"),
    ),
    Panel(
        "Groups by their fate",
        "A second. All but `trained` cost generation for nothing.",
        rate("headrace_orchestrator_groups_ended_total", "fate", "{{fate}}", where=RUN),
        rate("headrace_orchestrator_groups_issued_total", "replica", "issued again", where=f'{RUN}, kind="again"'),
        unit="ops",
    ),
    Panel(
        "Tokens a second",
        "Completion tokens: generated by all replicas, trained by the trainer.",
        recorded("run:headrace_generated_tokens:rate1m", "generated"),
        recorded("run:headrace_trained_tokens:rate5m", "trained"),
    ),
    Panel(
        "Peak memory of a rank",
        "The most that any rank held since the step before: tensors on its GPU, what torch reserved for"
        " them there, and the process on the host.",
        largest("headrace_trainer_peak_memory_bytes", "kind", "{{kind}}"),
        unit="bytes",
    ),
    Panel(
        "Checkpoints",
        "Steps since the newest whole one: what a restart replays. Every so many one is due.",
        recorded("run:headrace_checkpoint_behind_steps", "steps since"),
        of_run("headrace_trainer_checkpoint_interval_steps", "due every"),
        Query(f"increase(headrace_trainer_checkpoint_seconds_count{{{RUN}}}[$__rate_interval])", "written"),
        unit="none",
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-run",
    title="Headrace: run",
    description="Is the run learning, how fast, and what waits for what?",
    variables=(RUN_VARIABLE,),
    rows=(_HEAD, _LEARNING, _TRUST, _SPEED),
)
