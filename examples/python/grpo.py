"""A script of TRL's GRPOTrainer, ported: a tiny random model learns to answer in few characters, on a CPU.

    python examples/python/grpo.py

A model of your own goes to `model`: a folder, or an id such as "Qwen/Qwen2.5-0.5B-Instruct".
"""

from typing import Any

from headrace import train


def brief(completions: list[str], **columns: Any) -> list[float]:
    """A reward function as TRL calls it: 1 for at most one character, 1/2 for two, and so on."""
    return [1 / max(len(text), 1) for text in completions]


if __name__ == "__main__":
    run = train(
        dataset=[{"prompt": f"{number}+{number}="} for number in range(10, 100)],
        reward_funcs=[brief],
        settings={
            "run.id": "grpo",
            "run.max_steps": 8,
            "model.make.characters": "0123456789+=",
            "batch.groups": 8,
            "rollout.sampling.max_tokens": 8,
            "trainer.learning_rate": 1e-3,
        },
    )
    run.plot()
