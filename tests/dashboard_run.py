"""Synthetic run directories for the dashboard: any number of steps and rollouts, made quickly.

`python -m tests.dashboard_run FOLDER --steps 2000 --rollouts 10000` makes one to look at.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGAN = 1_790_000_000.0
STEP_S = 0.8
GROUP_SIZE = 4
REPLICAS = ("rollout-0", "rollout-1", "rollout-2")
_PHASES = (("prepare", 0.05), ("transfer", 0.25), ("verify", 0.1), ("commit", 0.02))
_RANDOM_NUMBERS = 22
"""Names `extra_00`, ... beside those that a real step has: about 50 numbers a step."""
_WORDS = ("the", "answer", "is", "first", "add", "both", "numbers", "carry", "one", "so", "we", "get", "check", "then")


def write_run(
    folder: Path,
    *,
    steps: int = 100,
    rollouts: int = 2000,
    state: str = "finished",
    run_id: str = "demo",
    seed: int = 0,
) -> Path:
    """A run of so many steps; its rollouts are spread over the last steps, `GROUP_SIZE` a group. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    write_config(folder, steps=steps, run_id=run_id, learning_rate=1e-4 * (seed + 1))
    write_metrics(folder / "metrics.jsonl", range(1, steps + 1), seed=seed)
    write_evals(folder / "evals.jsonl", steps)
    write_events(folder, steps, state=state, draw=draw)
    write_tokenizer(folder / "export")
    if rollouts:
        write_rollouts(folder / "rollouts", steps, rollouts, run_id=run_id, seed=seed)
    write_groups(folder / "state.sqlite", steps, rollouts)
    return folder


def write_config(folder: Path, *, steps: int, run_id: str, learning_rate: float) -> None:
    (folder / "config").mkdir(exist_ok=True)
    text = f"""[run]
id = "{run_id}"
stage = "rl"
seed = 0
max_steps = {steps}
max_staleness = 1

[model]
path = "model"

[batch]
groups = 16
group_size = {GROUP_SIZE}

[algorithm]
name = "dapo"
clip_high = 0.28

[trainer]
learning_rate = {learning_rate}
"""
    (folder / "config" / "run.toml").write_text(text)


def metrics_row(step: int, draw: random.Random) -> dict[str, float | int | bool]:
    """About the numbers that a step of the RL loop writes."""
    rise = 1 - math.exp(-step / 400)
    seconds = 0.5 + 0.2 * draw.random()
    waited = 0.3 * draw.random()
    row: dict[str, float | int | bool] = {
        "step": step, "t": round(BEGAN + step * STEP_S, 3), "seconds": seconds, "train_seconds": seconds * 0.9,
        "wait_batch_seconds": waited, "wait_batch_share": waited / (waited + seconds), "groups_discarded": 0,
        "replayed": False, "incarnation": 1, "loss": draw.gauss(0.0, 0.01), "logprob_gap_max": abs(draw.gauss(0, 1e-5)),
        "kl": abs(draw.gauss(0, 0.01)), "entropy": 0.5 * (1 - 0.7 * rise) + draw.gauss(0, 0.01),
        "policy_kl": abs(draw.gauss(0, 0.01)), "clip_fraction": abs(draw.gauss(0.02, 0.01)),
        "canary_gap": 1e-6 * (1 + step % 3),
        "logprob_gap_mean": abs(draw.gauss(0, 1e-6)), "mismatch_kl_k1": draw.gauss(0, 0.01),
        "mismatch_ess": 1 - abs(draw.gauss(0, 0.02)), "grad_norm": 1 + 0.3 * draw.random(), "learning_rate": 1e-4,
        "skipped": 0.0, "updates": 1.0, "kept_share": 1.0, "kl_coef": 0.0, "groups": 16, "rollouts": 64, "abstained": 0,
        "reward_mean": min(1.0, max(0.0, 0.3 + 0.6 * rise + draw.gauss(0, 0.04))), "reward_std": 0.4,
        "reward_min": -0.3, "reward_max": 1.5,
        "prompt_tokens": 400, "completion_tokens": 1700, "completion_length_mean": 26 + 8 * rise + draw.gauss(0, 1),
        "truncated_share": 0.02 * draw.random(), "staleness_mean": draw.random(), "staleness_max": 1,
        "groups_stale": int(draw.random() < 0.1), "stale_tokens_share": 0.1 * draw.random(),
        "trained_length_max": 60 + draw.randrange(4), "arrived_length_mean": 27 + 8 * rise + draw.gauss(0, 1),
        "arrived_length_max": 64 + draw.randrange(4), "mismatch_gap_mean": 1e-3, "mismatch_gap_max": 2e-2,
    }  # fmt: skip
    row |= phase_seconds(step, seconds, waited)
    interval = seconds + waited
    row |= {
        "interval_seconds": interval, "trained_tokens": 1700, "trained_tokens_per_second": 1700 / interval,
        "generated_tokens": 1800, "generated_tokens_per_second": 1800 / interval, "model_flops": 1.5e14 * interval,
        "trained_tokens_per_second_per_gpu": 850 / interval, "generated_tokens_per_second_per_gpu": 450 / interval,
        "mfu": 0.25 * seconds / interval, "mfu_train": 0.28, "peak_host_memory_bytes": 4.0e9 + 1e6 * step,
        "peak_device_memory_bytes": 6.1e10, "peak_device_memory_reserved_bytes": 6.6e10,
    }  # fmt: skip
    for name, weight in (("correct", 1.0), ("format", 0.3)):
        mean = row["reward_mean"] * (0.5 + 0.1 * (step % 5))
        row |= {f"rewards/{name}/{what}": value for what, value in (("mean", mean), ("weighted", weight * mean))}
        row[f"rewards/{name}/abstained"] = 0.01 * (step % 3)
    row.update({f"extra_{number:02d}": draw.random() for number in range(_RANDOM_NUMBERS)})
    return row


def phase_seconds(step: int, seconds: float, waited: float) -> dict[str, float]:
    """Every phase that a run without critic and discriminator has; a checkpoint after every 20th step."""
    shares = {"policy_update": 0.5, "reference": 0.2, "old_logprobs": 0.14, "optimizer": 0.06, "snapshot": 0.05}
    shares |= {"journal": 0.02, "advantages": 0.005, "publication_wait": 0.005, "other": 0.02}
    found = {"wait": waited, "record": 0.01} | {name: share * seconds for name, share in shares.items()}
    if step % 20 == 1 and step > 1:
        found["checkpoint"] = 0.4
    return {f"phase_seconds_{name}": value for name, value in found.items()}


def write_metrics(path: Path, steps: Sequence[int], *, seed: int = 0, add: bool = False) -> None:
    draw = random.Random(seed)
    with path.open("a" if add else "w") as file:
        file.writelines(json.dumps(metrics_row(step, draw)) + "\n" for step in steps)


def write_evals(path: Path, steps: int) -> None:
    every = max(1, steps // 20)
    with path.open("w") as file:
        for version in range(0, steps + 1, every):
            accuracy = round(0.3 + 0.6 * (1 - math.exp(-version / 400)), 6)
            line = {"version": version, "accuracy": accuracy, "pass_at_k": accuracy, "avg_at_k": accuracy, "k": 1}
            line |= {"prompts": 256, "missing": 0, "abstained": 0, "t": round(BEGAN + version * STEP_S + 0.4, 3)}
            file.write(json.dumps(line) + "\n")


def write_events(folder: Path, steps: int, *, state: str, draw: random.Random) -> None:
    """Publications of the last 60 steps, a few acts of an operator, and the run's last word."""
    (folder / "events").mkdir(exist_ok=True)
    lines: list[dict[str, Any]] = [issued(0, BEGAN)]
    lines += [publication(version, draw) for version in range(max(0, steps - 60), steps + 1)]
    for number, action in enumerate(("pause", "resume", "checkpoint")):
        t = BEGAN + (steps - 10 + number) * STEP_S + 0.1
        lines.append(
            {"t": t, "event": "operator_action", "action": action, "who": "dashboard", "said": f"{action}: done"}
        )
    lines.sort(key=lambda line: float(line["t"]))
    last = BEGAN + (steps + 1) * STEP_S
    if state == "finished":
        lines.append({"t": last, "event": "run_ended", "version": steps, "open_groups": []})
    elif state == "stopped":
        lines.append({"t": last, "event": "run_stopped", "version": steps, "open_groups": []})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "events" / "orchestrator-0a1b2c3d.jsonl").write_text(text)


def issued(index: int, t: float, run_id: str = "demo") -> dict[str, Any]:
    name = f"{run_id}/g{index:08d}"
    return {"t": t, "event": "issued", "group_index": index, "group_id": name, "attempt": 0, "min_version": 0}


def publication(version: int, draw: random.Random) -> dict[str, Any]:
    """One event as the orchestrator writes it; every 17th left a replica out."""
    began = BEGAN + version * STEP_S
    at = 0.0
    phases = []
    for phase, usual in _PHASES:
        until = at + usual * (0.5 + draw.random())
        phases.append({"phase": phase, "from_s": round(at, 3), "to_s": round(until, 3)})
        at = until
    members: list[dict[str, Any]] = [
        {"replica_id": name, "route": "gloo", "committed": True, "reason": ""} for name in REPLICAS
    ]
    if version % 17 == 16:
        members[-1] = {"replica_id": REPLICAS[-1], "route": "disk", "committed": False, "reason": "transfer: too late"}
    return {
        "t": round(began + at, 3), "event": "publication", "id": f"1.{version}-abc.{version}", "version": version,
        "incarnation": 1, "began": round(began, 3), "seconds": round(at, 3), "phases": phases, "members": members,
    }  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer whose tokens are single bytes: 256 of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_rollouts(folder: Path, steps: int, rollouts: int, *, run_id: str = "demo", seed: int = 0) -> None:
    """Spread evenly over the steps (the last ones, at least one group each)."""
    groups = max(1, rollouts // GROUP_SIZE)
    files = min(steps, groups)
    sizes = [groups // files + (number < groups % files) for number in range(files)]
    first = 0
    for number, size in enumerate(sizes):
        write_rollout_file(folder, steps - files + 1 + number, first, size, run_id=run_id, seed=seed)
        first += size


def write_rollout_file(
    folder: Path, step: int, first_group: int, groups: int, *, run_id: str = "demo", seed: int = 0
) -> Path:
    """The step's rollouts in the columns that the trainer writes."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{seed} {step}")
    rows = [row for index in range(first_group, first_group + groups) for row in _group(step, index, run_id, draw)]
    path = folder / f"step-{step:06d}.parquet"
    aside = folder / f".{path.name}"
    pq.write_table(pa.Table.from_pylist(rows), aside)
    aside.rename(path)
    return path


def _group(step: int, index: int, run_id: str, draw: random.Random) -> Iterator[dict[str, Any]]:
    left, right = draw.randrange(10, 99), draw.randrange(10, 99)
    rewards = [float(draw.random() < 0.5) for _ in range(GROUP_SIZE)]
    mean, replica = sum(rewards) / GROUP_SIZE, draw.choice(REPLICAS)
    low = max(0, step - 1 - draw.randrange(2))
    for number, reward in enumerate(rewards):
        words = " ".join(draw.choice(_WORDS) for _ in range(draw.randrange(3, 12)))
        text = f"{words}: {left + right if reward else left + right + 1}"
        count, is_cut = len(text), draw.random() < 0.1
        split = count // 2
        spans = [[0, split, f"1.{low}", "d0"], [split, count, f"1.{step - 1}", "d1"]]
        yield {
            "step": step, "group_index": index, "group_id": f"{run_id}/g{index:08d}", "rollout_index": number,
            "sample_id": f"s{index % 500}", "prompt": f"What is {left} + {right}?", "completion": text,
            "columns": json.dumps({"answer": str(left + right), "source": "=sums"}),
            "reward": reward, "components": json.dumps({"correct": reward, "format": round(draw.random(), 3)}),
            "token_score": None, "reason": "equal" if reward else f"{left + right} was wanted",
            "scorers": json.dumps({"correct": "1", "format": "2"}), "advantage": reward - mean,
            "min_version": low, "max_version": step - 1, "finish_reason": "length" if is_cut else "stop",
            "tokens": count, "trained_tokens": count, "replica_id": replica, "spans": json.dumps(spans),
            "trace_id": f"{index:032x}", "token_ids": _ids(text),
            "logprobs": np.array([-draw.expovariate(2.0) for _ in range(count)], np.float32),
            "token_advantages": None,
        }  # fmt: skip


def _ids(text: str) -> np.ndarray:
    """Token ids by the tokenizer above: its alphabet has printable ASCII first, in order, from `!`; a blank later."""
    return np.array([_ID_OF[letter] for letter in text], np.int32)


def _make_ids() -> dict[str, int]:
    # GPT-2's bytes-to-letters: printable bytes stand for themselves, the others for letters from U+0100 on.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    letters |= {byte: chr(256 + number) for number, byte in enumerate(b for b in range(256) if b not in set(plain))}
    order = {letter: number for number, letter in enumerate(sorted(letters.values()))}
    return {chr(byte): order[letter] for byte, letter in letters.items() if byte < 128}


_ID_OF = _make_ids()


def write_groups(path: Path, steps: int, rollouts: int) -> None:
    """The orchestrator's table of groups: all trained but a few."""
    from headrace.services.orchestrator.state.store import Store

    store = Store(path)
    groups = max(1, rollouts // GROUP_SIZE)
    store.end([(index, 1 + index * steps // groups, "") for index in range(groups)])
    store.end([(groups, 0, "stale"), (groups + 1, 0, "scorer_failed")])
    store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--state", choices=("finished", "stopped", "killed"), default="finished")
    options = parser.parse_args()
    write_run(options.folder, steps=options.steps, rollouts=options.rollouts, state=options.state)
