"""The whole `run.toml`: its tables, and whether they work together."""

from pydantic import model_validator

from headrace.config.reward_checks import all_leaves, eval_problem, reward_problem
from headrace.config.tables import RunTables
from headrace.services.trainer.config.checks import critic_problem
from headrace.wire.contracts.codec import MAX_ENTRY_BYTES
from headrace.wire.contracts.messages import KEPT_IDS


class RunFile(RunTables):
    """All tables of a `run.toml`; the one place where they are seen together."""

    @model_validator(mode="after")
    def _work_together(self) -> "RunFile":
        reason = (
            critic_problem(self.algorithm, self.critic)
            or _adapter_problem(self)
            or _trust_region_problem(self)
            or _context_problem(self)
            or _sampling_problem(self)
            or turns_problem(self)
            or reward_problem(self)
            or eval_problem(self)
            or _environment_problem(self)
        )
        if reason is not None:
            raise ValueError(reason)
        return self

    @property
    def serves_on_cuda(self) -> bool:
        """Whether this config launches SGLang servers on GPUs."""
        table = self.rollout.sglang
        device = self.run.device if table.device == "auto" else table.device
        rl = self.run.stage == "rl" and self.rollout.engine == "sglang"
        return rl and not table.urls and device.startswith("cuda")


def turns_problem(config: RunFile) -> str | None:
    """Why trainer and engines cannot take turns on their GPUs, with the fix; None if they can, or do not."""
    rollout, trainer = config.rollout, config.trainer
    if rollout.gpu_sharing != "turns":
        return None
    longest = max((one.deadline_s for one in config.eval), default=0.0)
    needs = {
        "run.max_staleness = 0: nothing is generated while the trainer steps": config.run.max_staleness == 0,
        "trainer.nodes = 1: the locks of the GPUs are one machine's": trainer.nodes == 1,
        "trainer.backend auto, single or fsdp2: DeepSpeed keeps its own state on the GPU": trainer.backend
        != "deepspeed",
        f"rollout.replicas = trainer.ranks, one replica a GPU; they are {rollout.replicas} and {trainer.ranks}": (
            rollout.replicas == trainer.ranks
        ),
        "rollout.sglang.tp = 1, one replica a GPU": rollout.sglang.tp == 1,
        "a server of its own: those of rollout.sglang.urls are not ours to put to sleep": not rollout.sglang.urls,
        "all weights trained with SGLang (model.lora.rank = 0): it drops its base, and only adapters would come": (
            rollout.engine != "sglang" or config.model.lora.rank == 0
        ),
        f"trainer.turn_timeout_s above eval.deadline_s, which is {longest:g}: evaluations end first": (
            trainer.turn_timeout_s > longest
        ),
    }
    lacks = [what for what, holds in needs.items() if not holds]
    return f"rollout.gpu_sharing = 'turns' needs {lacks[0]}" if lacks else None


def _sampling_problem(config: RunFile) -> str | None:
    algorithm, critic = config.algorithm, config.critic
    held = critic.pretrain_steps + critic.warmup_steps
    if algorithm.needs_critic and held >= config.run.max_steps > 0:
        return (
            f"critic.pretrain_steps + critic.warmup_steps = {held} leave no step of run.max_steps = "
            f"{config.run.max_steps} in which the policy is trained"
        )
    if algorithm.dynamic_sampling and config.batch.group_size < 2:
        return "algorithm.dynamic_sampling needs batch.group_size of 2 or more: one rollout has nothing to differ from"
    return _draw_problem(config)


def _draw_problem(config: RunFile) -> str | None:
    """Why rollouts of RL would not be drawn from the distribution whose logprobs are recorded and trained."""
    sampling, algorithm = config.rollout.sampling, config.algorithm
    if config.run.stage != "rl":
        return None
    if sampling.top_k > KEPT_IDS:
        return (
            f"rollout.sampling.top_k = {sampling.top_k}: at most {KEPT_IDS} ids are recorded for a token, and the "
            f"trainer needs all that it was drawn from; set it to {KEPT_IDS} or less, or to 0 for the whole vocabulary"
        )
    if sampling.most_kept and sampling.forced_lengths_column:
        return (
            "rollout.sampling.forced_lengths_column: a forced token is in no cut-off distribution; leave out top_k, "
            "top_p and min_p"
        )
    if algorithm.kl_support == "kept" and not sampling.most_kept:
        return "algorithm.kl_support = 'kept' needs cut-off sampling: set rollout.sampling.top_k, top_p or min_p"
    whole = sampling.most_kept and algorithm.kl_support == "vocabulary"
    if whole and (algorithm.kl_in, algorithm.anchor) == ("reward", "behaviour") and algorithm.kl_coef:
        return (
            "rollout.sampling cuts off: the KL to the reference is over the whole vocabulary, where algorithm.anchor = "
            "'behaviour' has no logprobs; set algorithm.anchor = 'proximal', kl_in = 'loss' or kl_support = 'kept'"
        )
    if sampling.most_kept and algorithm.advantage == "online_dpo":
        return (
            "advantage = 'online_dpo' compares logprobs over the whole vocabulary; leave out rollout.sampling.top_k, "
            "top_p and min_p"
        )
    turn_bytes = 4 * sampling.max_tokens * (sampling.most_kept + 3)
    if sampling.most_kept and config.environment.on and turn_bytes > MAX_ENTRY_BYTES:
        return (
            f"rollout.sampling.max_tokens = {sampling.max_tokens}: a turn of {sampling.most_kept} ids a token may not "
            f"fit into the {MAX_ENTRY_BYTES >> 20} MiB of an answer; lower rollout.sampling.top_k or max_tokens"
        )
    if sampling.min_p and config.rollout.deterministic and config.rollout.engine == "sglang":
        return "rollout.sampling.min_p: SGLang draws no seeded tokens with it; set rollout.deterministic = false"
    if sampling.forced_lengths_column and config.rollout.engine == "sglang":
        return 'rollout.sampling.forced_lengths_column: SGLang cannot force a token; set rollout.engine = "torch"'
    if algorithm.greedy_last and sampling.forced_lengths_column:
        return f"algorithm {algorithm.name!r} adds a greedy rollout to each group, which no forced length is given for"
    return None


def _adapter_problem(config: RunFile) -> str | None:
    algorithm, rank = config.algorithm, config.model.lora.rank
    if config.model.trainable != "all" and (rank or config.run.stage == "reward_model"):
        other = "with model.lora.rank above 0 adapters" if rank else "in the stage 'reward_model' all weights"
        return f"model.trainable = {config.model.trainable!r}: {other} are trained; leave it out"
    if config.model.trainable != "all" and config.trainer.backend == "deepspeed":
        return "model.trainable: ZeRO's partitions hold trained weights alone; set trainer.backend = 'fsdp2'"
    if algorithm.reference == "adapters_off" and algorithm.needs_reference and not rank:
        return (
            "algorithm.reference = 'adapters_off' needs adapters: set model.lora.rank, or reference = 'frozen' for a "
            "copy of the whole model"
        )
    if algorithm.reference_reset_every and rank:
        return (
            "algorithm.reference_reset_every needs all weights trained: with model.lora.rank above 0 the reference is "
            "the model without its adapters, which never changes"
        )
    return None


def _trust_region_problem(config: RunFile) -> str | None:
    table = config.trainer
    if config.run.stage != "rl" or config.algorithm.policy_loss != "trpo":
        return None
    if table.backend not in ("auto", "single") or table.ranks * table.nodes > 1 or table.compile is True:
        return (
            "algorithm.policy_loss = 'trpo' needs trainer.ranks = 1, backend 'auto' or 'single' and no trainer.compile"
        )
    return None


def _context_problem(config: RunFile) -> str | None:
    """Why ranks cannot share the tokens of rows."""
    table = config.trainer
    if table.cp > 1 and table.compile is True:
        return "trainer.compile has not been seen to work with trainer.cp above 1: leave one of them out"
    if table.cp > 1 and config.run.stage == "sft" and config.sft.pack_tokens:
        return "sft.pack_tokens packs short examples, trainer.cp divides long ones: set one of them to its default"
    return None


def _environment_problem(config: RunFile) -> str | None:
    """Why episodes cannot be played in this run, with the way out."""
    table = config.environment
    if not table.on:
        if any(one.name == "environment" for one in all_leaves(config)):
            return "the scorer 'environment' needs an environment to read its reward from: set environment.name"
        return None
    if config.data.environment and table.taskset != config.data.environment:
        return (
            f'data.environment = "{config.data.environment}", but environment.name = "{table.name}" is what is played: '
            "leave one of them out"
        )
    if config.run.stage != "rl":
        return f"[environment] is for run.stage = 'rl', not {config.run.stage!r}"
    if table.episode_s >= config.trainer.batch_timeout_s:
        return (
            f"environment.episode_s = {table.episode_s:g} must be below trainer.batch_timeout_s = "
            f"{config.trainer.batch_timeout_s:g}: the trainer would give up on an episode that is within its time"
        )
    if config.discriminator.every:
        return (
            "[discriminator] learns from completions of one prompt, not from episodes: leave it out with [environment]"
        )
    if config.rollout.sampling.forced_lengths_column:
        return "rollout.sampling.forced_lengths_column is for completions, not for episodes: leave it out"
    if table.slots < config.batch.group_size:
        return (
            f"environment.slots = {table.slots} must be at least batch.group_size = {config.batch.group_size}: all "
            "episodes of a group are played at a time"
        )
    return None
