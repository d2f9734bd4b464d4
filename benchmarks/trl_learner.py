"""TRL's side of `learning_vs_trl`, run in an environment of its own.

    trl_learner.py train SPEC OUT                  # GRPOTrainer as the JSON file SPEC says; OUT/model, OUT/result.json
    trl_learner.py evaluate OUT ROWS MODEL...      # greedy exact match of model folders; OUT is a JSON file

The evaluation of one side's model is the same function for both sides, and the one that TRL's curve is made with.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import torch
from datasets import Dataset
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from headrace.services.trainer.step.schedule import learning_rate

THREADS = 2
MAX_TOKENS = 5


@torch.no_grad()
def greedy_accuracy(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]]) -> float:
    """Share of rows whose greedy completion, special tokens left out, is the answer; prompts of one length each."""
    ids = tokenizer([row["prompt"] for row in rows])["input_ids"]
    prompts = torch.tensor(ids)
    greedy = GenerationConfig(
        max_new_tokens=MAX_TOKENS,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    training = model.training
    model.eval()
    made = model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), generation_config=greedy)
    model.train(training)
    texts = tokenizer.batch_decode(made[:, prompts.shape[1] :], skip_special_tokens=True)
    return sum(text.strip() == row["answer"] for text, row in zip(texts, rows, strict=True)) / len(rows)


def exact_match(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The reward: 1 for the answer and nothing else."""
    return [float(said.strip() == wanted) for said, wanted in zip(completions, answer, strict=True)]


class Learner(GRPOTrainer):
    """TRL's trainer under the other side's learning rates; notes what was trained."""

    spec: dict[str, Any]
    prompt_ids: list[list[int]]
    given: list[list[int]]
    """Completions to train on in place of sampled ones, in the order of training; empty = it samples."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The other side's schedule; transformers' own begins one step earlier, with a rate of 0."""

        def share(done: int) -> float:
            names = ("warmup_steps", "max_steps", "schedule")
            return learning_rate(done + 1, peak=1.0, **{name: self.spec[name] for name in names})

        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, share)
        return self.lr_scheduler

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        made = super()._tokenize_prompts(prompts)
        self.prompt_ids += made[0]
        return made

    def _generate_single_turn(self, prompt_ids: list[list[int]], *others: Any, **options: Any) -> Any:
        if not self.given:
            return super()._generate_single_turn(prompt_ids, *others, **options)
        taken, self.given[: len(prompt_ids)] = self.given[: len(prompt_ids)], []
        return taken, None


class Curve(TrainerCallback):
    """Held-out accuracy every so many steps, and the learning rate of each step."""

    def __init__(self, tokenizer: Any, rows: list[dict[str, str]], every: int) -> None:
        self._tokenizer, self._rows, self._every = tokenizer, rows, every
        self.points: list[tuple[int, float]] = []
        self.rates: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.points.append((0, greedy_accuracy(model, self._tokenizer, self._rows)))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **others: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == args.max_steps:
            self.points.append((state.global_step, greedy_accuracy(model, self._tokenizer, self._rows)))


def config(spec: dict[str, Any], out: Path) -> GRPOConfig:
    """The other side's settings in TRL's words; what is not named here is TRL's default."""
    rollouts = spec["groups"] * spec["group_size"]
    return GRPOConfig(
        output_dir=str(out / "trainer"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=rollouts,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_iterations=1,
        num_generations=spec["group_size"],
        max_completion_length=MAX_TOKENS,
        shuffle_dataset=False,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.0,
        loss_type="grpo",
        scale_rewards="group",
        epsilon=spec["clip"],
        epsilon_high=spec["clip"],
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        weight_decay=0.0,
        max_grad_norm=1.0,
        learning_rate=spec["learning_rate"],
        max_steps=spec["max_steps"],
        seed=spec["seed"],
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def read_rows(path: str) -> list[dict[str, str]]:
    """Rows of a JSONL file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def load(folder: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a folder, in float32."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer


def train(spec_path: str, out_path: str) -> None:
    """Trains on the rows in their order; writes model, curve, what TRL logged, and the prompts' token ids."""
    spec, out = json.loads(Path(spec_path).read_text()), Path(out_path)
    model, tokenizer = load(spec["model"])
    curve = Curve(tokenizer, read_rows(spec["held_out"]), spec["eval_every"])
    trainer = Learner(
        model,
        reward_funcs=exact_match,
        args=config(spec, out),
        train_dataset=Dataset.from_list(read_rows(spec["rows"])),
        processing_class=tokenizer,
        callbacks=[curve],
    )
    trainer.spec, trainer.prompt_ids, trainer.given = spec, [], spec["given"]
    trainer.train()
    trainer.model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    logged = [line for line in trainer.state.log_history if "reward" in line]
    result = {"points": curve.points, "rates": curve.rates, "logged": logged, "prompt_ids": trainer.prompt_ids}
    (out / "result.json").write_text(json.dumps(result))


def evaluate(out: str, rows_path: str, *folders: str) -> None:
    """Writes the accuracy of each model folder, in their order."""
    rows = read_rows(rows_path)
    Path(out).write_text(json.dumps([greedy_accuracy(*load(folder), rows) for folder in folders]))


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    {"train": train, "evaluate": evaluate}[sys.argv[1]](*sys.argv[2:])
