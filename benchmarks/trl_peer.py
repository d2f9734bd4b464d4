"""TRL's side of `e2e_vs_trl`, run in an environment of its own: `trl_peer.py MODE MODEL ROWS STEPS SEED OUT`.

MODE is `generate`, `batching` (transformers' continuous batching) or `loss` (the GRPO loss of one fixed batch).
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList
from trl import GRPOConfig, GRPOTrainer

from benchmarks import workload


class ForcedLengths(LogitsProcessor):
    """Row r gets the stop token as its token number lengths[r], and not before."""

    def __init__(self, prompt_length: int, lengths: list[int], eos: int) -> None:
        self._prompt_length = prompt_length
        self._lengths = torch.tensor(lengths)
        self._eos = eos

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        made = input_ids.shape[1] - self._prompt_length
        end = self._lengths <= made + 1
        scores[:, self._eos] = float("-inf")
        scores[end] = float("-inf")
        scores[end, self._eos] = 0.0
        return scores


class Clock(GRPOTrainer):
    """Notes when each optimizer step ended and how many completion tokens it trained."""

    steps: list[dict[str, float]]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)
        self.tokens = int(batch["completion_mask"].sum())
        return batch

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        self.steps.append({"t": time.perf_counter(), "tokens": self.tokens})
        return loss


def config(mode: str, steps: int, seed: int, out: Path) -> GRPOConfig:
    """The fair settings: same batch, optimizer, dtype and loss as the other side."""
    return GRPOConfig(
        output_dir=str(out.parent / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=workload.GROUPS * workload.GROUP_SIZE,
        num_generations=workload.GROUP_SIZE,
        max_completion_length=workload.MAX_TOKENS,
        steps_per_generation=1,
        num_iterations=1,
        beta=0.0,
        loss_type="grpo",
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        learning_rate=workload.LEARNING_RATE,
        lr_scheduler_type="constant",
        max_steps=steps,
        dataloader_num_workers=0,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_steps=1000,
        seed=seed,
        use_transformers_continuous_batching=mode == "batching",
    )


def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """TRL's interface around the common score."""
    return [workload.score(completion) for completion in completions]


def force_lengths(model: Any, tokenizer: Any, mode: str, rows: list[dict[str, Any]]) -> None:
    """Makes both ways of generating follow the drawn lengths; the n-th rollout of a prompt gets its n-th length."""
    eos = tokenizer.eos_token_id

    def drawn(prompts: list[list[int]]) -> list[int]:
        seen: dict[int, int] = {}
        result = []
        for prompt in prompts:
            row = int(tokenizer.convert_ids_to_tokens(prompt[0])[1:])
            result.append(rows[row]["forced_lengths"][seen.get(row, 0) % workload.GROUP_SIZE])
            seen[row] = seen.get(row, 0) + 1
        return result

    if mode == "generate":
        plain = model.generate

        def generate(input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
            prompts = [[t for t in row if t != tokenizer.pad_token_id] for row in input_ids.tolist()]
            processor = ForcedLengths(input_ids.shape[1], drawn(prompts), eos)
            return plain(input_ids=input_ids, **options, logits_processor=LogitsProcessorList([processor]))

        model.generate = generate
        return
    from transformers.generation.continuous_batching import ContinuousBatchingManager

    def add_requests(self: Any, inputs: list[list[int]], **options: Any) -> list[str]:
        names = []
        for index, (prompt, length) in enumerate(zip(inputs, drawn(inputs), strict=True)):
            names.append(f"r{index}")
            self.add_request(input_ids=prompt, request_id=names[-1], max_new_tokens=length, eos_token_id=-1)
        return names

    ContinuousBatchingManager.add_requests = add_requests
    batch = model.generate_batch

    def generate_batch(*args: Any, **options: Any) -> Any:
        outputs = batch(*args, **options)
        for output in outputs.values():
            tokens = [t if t != eos else eos + 1 for t in output.generated_tokens]
            output.generated_tokens = [*tokens[:-1], eos]
        return outputs

    model.generate_batch = generate_batch


def main(mode: str, model_dir: str, rows_path: str, steps: str, seed: str, out: str) -> None:
    """Trains for so many steps (or computes one loss) and writes what was seen as JSON."""
    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    rows = [json.loads(line) for line in Path(rows_path).read_text().splitlines()]
    dataset = Dataset.from_list([{"prompt": row["prompt"]} for row in rows])
    arguments = config(mode, int(steps), int(seed), Path(out))
    trainer = Clock(model, reward_funcs=reward, args=arguments, train_dataset=dataset, processing_class=tokenizer)
    trainer.steps = []
    if mode == "loss":
        result: Any = fixed_loss(trainer, np.load(rows_path.replace(".jsonl", ".npz")))
    else:
        force_lengths(model, tokenizer, mode, rows)
        trainer.train()
        result = {"steps": trainer.steps}
    Path(out).write_text(json.dumps(result))


def fixed_loss(trainer: Any, batch: Any) -> dict[str, float]:
    """TRL's GRPO loss of the given tokens, behaviour logprobs and advantages."""
    names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages", "old_per_token_logps")
    inputs = {name: torch.from_numpy(batch[name]) for name in names}
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.eval()
    return {"loss": float(trainer._compute_loss(trainer.model, inputs))}


if __name__ == "__main__":
    main(*sys.argv[1:])
