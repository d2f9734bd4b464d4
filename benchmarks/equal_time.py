"""The demo's learning on the clock of `benchmarks.overlap`: what each `run.stale` has learned in the same time.

In one process: the loop's model decides when what is sampled, by which weights, and what is trained next; the tokens
are drawn from the demo's model, and each step is the trainer's own. An answer's few tokens are drawn at even distances
over the seconds that an answer of its emulated length takes, and a sum with a carry takes twice as long as one without:
to train long answers less is to train hard sums less. Nothing depends on the machine's speed.
"""

import copy
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.overlap import MEAN, TOKENS_S, Group, Loop
from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.durability.staleness import most_lag
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.step.batch import assemble
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import train_step
from headrace.wire.contracts import (
    FinishReason,
    PolicyVersion,
    PromptGroup,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    VersionSpan,
)

GROUPS, STEPS, LOOKS, RATE, LONGEST = 32, 120, 10, 3e-4, 5
"""Groups of a batch; seconds, in steps; evaluations in that time; learning rate; tokens of an answer at most."""


@dataclass(eq=False)
class Answer:
    """A rollout under way: its tokens so far, and the version that drew each."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class LearningLoop(Loop):
    """A loop whose steps train. `looks`: (seconds, steps, probability of the right answer)."""

    def __init__(self, demo: Path, **how: Any) -> None:
        super().__init__(steps=10**9, groups=GROUPS, **how)
        torch.manual_seed(how["seed"])
        self.rows, self.held_out = (
            [json.loads(line) for line in (demo / name).read_text().splitlines()]
            for name in ("prompts.jsonl", "held_out.jsonl")
        )
        self.draw.shuffle(self.rows)
        self.tokenizer = AutoTokenizer.from_pretrained(demo / "model")
        self.server = AutoModelForCausalLM.from_pretrained(demo / "model", dtype=torch.float32)
        self.judge = copy.deepcopy(self.server)
        policy = load_policy(demo / "model", device="cpu", forward_dtype=torch.float32)
        self.trainer = SingleDevice(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        table = AlgorithmTable.model_validate({"name": "dapo", "dynamic_sampling": False})
        self.config = StepConfig(
            algorithm=build_algorithm(table), table=table, micro_batch_tokens=8192, logprob_chunk=1024, grad_clip=1.0,
            most_lag=most_lag(self.policy, self.staleness),
        )  # fmt: skip
        self.answers: dict[int, list[Answer]] = {}
        self.batch: list[Group] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.looks: list[tuple[float, int, float]] = []
        for look in range(LOOKS + 1):
            self.at(look * STEPS * self.step_s / LOOKS, self.look)

    def lengths(self, index: int, mean: float = MEAN) -> list[int]:
        """As the loop's, by the sum."""
        a, b = self.rows[index % len(self.rows)]["prompt"].rstrip("=").split("+")
        self.answers[index] = [Answer() for _ in range(8)]
        return super().lengths(index, mean * (4 / 3 if int(a[-1]) + int(b[-1]) > 9 else 2 / 3))

    def account(self, group: Group) -> None:
        """Keeps the batch until its step."""
        super().account(group)
        self.batch.append(group)

    def publish(self) -> None:
        """What was sampled so far is of the old weights."""
        self.sample()
        self.server.load_state_dict(self.weights.pop(0), strict=False)
        super().publish()

    def end_step(self) -> None:
        """The trainer's own step."""
        self.sample()
        batch = assemble([self.scored(group) for group in self.batch], version=self.version)
        models = StepModels(policy=self.trainer, critic=None, reference=None)
        train_step(models, batch, self.config, Rates(policy=RATE * min(1, (self.version + 1) / 5)))
        for group in self.batch:
            del self.answers[group.index]
        self.batch = []
        self.weights.append({name: weight.detach().clone() for name, weight in self.trainer.module.named_weights()})
        super().end_step()

    def sample(self) -> None:
        """Draws the tokens that all answers under way have had the time for."""
        wanted: list[tuple[list[int], Answer, int]] = []
        for group in [*self.open.values(), *self.batch]:
            prompt = self.tokenizer(self.rows[group.index % len(self.rows)]["prompt"])["input_ids"]
            for number, start in group.starts.items():
                share = (self.now - start) * TOKENS_S / group.lengths[number]
                wanted.append((prompt, self.answers[group.index][number], math.floor(LONGEST * min(share + 1e-9, 1))))
        while left := [one for one in wanted if len(one[1].tokens) < one[2] and not self.is_over(one[1])]:
            logprobs = next_logprobs(self.server, [prompt + answer.tokens for prompt, answer, _ in left])
            for (_, answer, _), token, own in zip(
                left, torch.multinomial(logprobs.exp(), 1)[:, 0].tolist(), logprobs, strict=True
            ):
                answer.tokens.append(token)
                answer.logprobs.append(float(own[token]))
                answer.versions.append(self.served)

    def is_over(self, answer: Answer) -> bool:
        """Whether it has ended itself."""
        return bool(answer.tokens) and answer.tokens[-1] == self.tokenizer.eos_token_id

    def scored(self, group: Group) -> ScoredGroup:
        """The group as the trainer gets it: 1 for the right answer."""
        row = self.rows[group.index % len(self.rows)]
        rollouts, scores = [], []
        for number, answer in enumerate(self.answers[group.index]):
            starts = [k for k in range(len(answer.tokens)) if k == 0 or answer.versions[k] != answer.versions[k - 1]]
            spans = [
                VersionSpan(
                    start=start,
                    end=end,
                    version=PolicyVersion(incarnation=1, version=answer.versions[start]),
                    weights_digest="",
                )
                for start, end in zip(starts, [*starts[1:], len(answer.tokens)], strict=True)
            ]
            name = f"{group.index}/{number}"
            reason = FinishReason.STOP if self.is_over(answer) else FinishReason.LENGTH
            rollouts.append(
                Rollout(
                    rollout_id=name, token_ids=np.array(answer.tokens, np.int32), finish_reason=reason,
                    logprobs=np.array(answer.logprobs, np.float32), spans=tuple(spans),
                )
            )  # fmt: skip
            scores.append(Score(rollout_id=name, value=float(self.is_right(answer.tokens, row))))
        ids = np.array(self.tokenizer(row["prompt"])["input_ids"], np.int32)
        sampling = Sampling(max_tokens=LONGEST, stop_token_ids=(self.tokenizer.eos_token_id,))
        prompt = PromptGroup(sample_id=str(group.index), token_ids=ids, group_size=len(rollouts), sampling=sampling)
        made = RolloutGroup(prompt=prompt, rollouts=tuple(rollouts), replica_id="rollout-0")
        return ScoredGroup(group=made, scores=tuple(scores))

    def is_right(self, tokens: Iterable[int], row: dict[str, Any]) -> bool:
        """Whether an answer is the row's, to the letter."""
        return bool(self.tokenizer.decode([*tokens], skip_special_tokens=True).strip() == row["answer"])

    def look(self) -> None:
        """The newest weights: the probability of the right answer, over the held-out sums."""
        self.judge.load_state_dict(dict(self.trainer.module.named_weights()), strict=False)
        chances = torch.zeros(len(self.held_out))
        pairs = [[*self.tokenizer([row["prompt"], row["answer"]])["input_ids"]] for row in self.held_out]
        for place in range(LONGEST):
            answers = [[*answer, self.tokenizer.eos_token_id] for _, answer in pairs]
            rows = [number for number, answer in enumerate(answers) if place < len(answer)]
            if rows:
                found = next_logprobs(self.judge, [pairs[number][0] + answers[number][:place] for number in rows])
                chances[rows] += found[range(len(rows)), [answers[number][place] for number in rows]]
        self.looks.append((self.now, self.version, float(chances.exp().mean())))
        if len(self.looks) > LOOKS:
            self.steps = 0


def next_logprobs(model: Any, rows: list[list[int]]) -> torch.Tensor:
    """float32 [rows, vocabulary]: of the token after each row."""
    ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[torch.arange(len(rows)), torch.tensor([len(row) - 1 for row in rows])]
    return torch.log_softmax(logits.float(), -1)


def learned(demo: Path, stale: Any, *, sigma: float, seed: int, staleness: int = 1) -> dict[str, Any]:
    """What one policy has learned, from the demo's supervised model: at the end, and on average over the time."""
    loop = LearningLoop(demo, staleness=staleness, policy=stale, sigma=sigma, seed=seed)
    loop.run()
    lags = np.arange(len(loop.lags))
    gains = [look[2] - loop.looks[0][2] for look in loop.looks]
    return {
        "accuracy": loop.looks[-1][2],
        "gain": gains[-1],
        "gain_mean": float(np.mean(gains)),
        "steps": loop.version,
        "wasted_share": loop.wasted / loop.spent,
        "token_lag_mean": float((lags * loop.lags).sum() / loop.lags.sum()),
        "token_lag_max": int(lags[loop.lags > 0].max()),
    }
