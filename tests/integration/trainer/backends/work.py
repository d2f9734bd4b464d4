"""The same work for every backend: a tiny model, some rollouts, steps on them, and what came out."""

import dataclasses

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.model.lora import add_adapters
from headrace.services.trainer.model.model import Policy, ValueModel, layers_of
from headrace.services.trainer.model.optimizers import OptimizerOptions
from headrace.services.trainer.model.quantization import quantize_body
from headrace.services.trainer.model.trainable import freeze_untrained
from headrace.wire.config.settings import LoraTable
from tests.families import tiny_family
from tests.ranks import through_checkpoint

VOCAB = 64
ROWS = 16
BETAS = (0.9, 0.99)
ADAMW = OptimizerOptions(betas=BETAS, weight_decay=0.1)
MUON = OptimizerOptions(name="muon", betas=BETAS, weight_decay=0.1)
EIGHT_BIT = OptimizerOptions(name="adamw_8bit")
OPTIONS = BackendOptions(optimizer=ADAMW)


def tiny_config(tied):
    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
    )


def critic():
    torch.manual_seed(3)
    config = tiny_config(True)
    config.num_labels = 2
    return ValueModel(Qwen3ForSequenceClassification(config).train(), forward_dtype=torch.float32)


def policy(*, tied=True, dtype=torch.float32, lora=None, checkpointing=False, seed=0, trained="all"):
    torch.manual_seed(seed)
    config = tiny_config(tied)
    model = Qwen3ForCausalLM(config)
    if lora is not None:
        if lora.quantize == "nf4":
            quantize_body(model, device="cpu", forward_dtype=dtype)
        add_adapters(model, lora)
    else:
        freeze_untrained(model, layers_of(model.base_model), trained)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    exact = dtype == torch.float64
    return Policy(model.double() if exact else model, forward_dtype=dtype, lora=lora)


def experts():
    """A policy whose checkpoint has other names and shapes than its memory."""
    return Policy(tiny_family("deepseek_v3").train(), forward_dtype=torch.float32)


LORA = LoraTable(rank=2, alpha=8, targets=("q_proj", "down_proj"))
QLORA = LoraTable(rank=2, alpha=8, targets=("q_proj", "down_proj"), quantize="nf4")


def options(name, **changes):
    return dataclasses.replace(OPTIONS, name=name, **changes)


@dataclasses.dataclass
class Row:
    ids: torch.Tensor
    prompt: int
    advantage: float


def rows():
    draw = torch.Generator().manual_seed(5)
    found = []
    for _ in range(ROWS):
        length = int(torch.randint(4, 12, (1,), generator=draw))
        ids = torch.randint(0, VOCAB, (length,), generator=draw)
        found.append(Row(ids, 1 + length // 4, float(torch.randn(1, generator=draw))))
    return found


def micro_loss(backend, batch, tokens):
    """A policy gradient with an entropy term: the mean over all `tokens` of the step."""
    longest = max(len(row.ids) for row in batch)
    ids = torch.zeros((len(batch), longest - 1), dtype=torch.long)
    for number, row in enumerate(batch):
        ids[number, : len(row.ids) - 1] = row.ids[:-1]
    lengths = [len(row.ids) - row.prompt for row in batch]
    numbers = torch.arange(len(batch)).repeat_interleave(torch.tensor(lengths))
    places = torch.cat([torch.arange(row.prompt - 1, len(row.ids) - 1) for row in batch])
    targets = torch.cat([row.ids[row.prompt :] for row in batch])
    temperature = torch.full(targets.shape, 0.7)
    scores = backend(ids, numbers, places, targets, temperature, 5)
    advantages = torch.tensor([row.advantage for row in batch]).repeat_interleave(torch.tensor(lengths))
    return -(scores.logprobs * advantages.to(scores.logprobs) + 0.01 * scores.entropy).sum() / tokens


def one_step(backend, *, size=3, rate=1e-2, clip=0.0):
    """A step in micro-batches of `size` rows, dealt to the ranks; returns the step's loss and the gradient's norm."""
    data = rows()
    tokens = sum(len(row.ids) - row.prompt for row in data)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    ranks = backend.ranks
    rounds = -(-len(parts) // ranks.data_size)
    total = torch.zeros(1, dtype=torch.float64)
    for number in range(rounds):
        place = number * ranks.data_size + ranks.data_rank
        mine = parts[place] if place < len(parts) else parts[0][:1]
        loss = micro_loss(backend, mine, tokens) * float(place < len(parts))
        backend.backward(loss, last=number == rounds - 1)
        total += float(loss.detach())
    norm = backend.apply(learning_rate=rate, grad_clip=clip)
    return float(ranks.sum_data(total)), norm


def gradient(backend, size, folder):
    """Gradient of one step: AdamW's first mean of it, scaled back."""
    one_step(backend, size=size, rate=0.0)
    moments = through_checkpoint(folder, backend.ranks, {"optimizer": backend.optimizer_rows()}).optimizer
    return {
        key.removesuffix("/exp_avg"): value / (1 - BETAS[0])
        for key, value in moments.items()
        if key.endswith("/exp_avg")
    }


def value_step(backend):
    """Both outputs at each row's last place are drawn to its advantage; returns the loss and the gradient's norm."""
    data, ranks = rows(), backend.ranks
    mine = data[ranks.data_rank :: ranks.data_size]
    ids = torch.zeros((len(mine), 12), dtype=torch.long)
    for number, row in enumerate(mine):
        ids[number, : len(row.ids)] = row.ids
    values = backend(ids, torch.arange(len(mine)), torch.tensor([len(row.ids) - 1 for row in mine]))
    targets = torch.tensor([row.advantage for row in mine])[:, None]
    loss = (values - targets).square().sum() / len(data)
    backend.backward(loss, last=True)
    return float(ranks.sum_data(loss.detach())), backend.apply(learning_rate=1e-2, grad_clip=1.0)
