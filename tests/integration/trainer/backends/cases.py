"""What is done in a world of ranks: each case gives numbers and tensors, the same on one device."""

import math

import torch
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM

from headrace.services.trainer.backends.frozen import make_frozen
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.learner.learner import state_of
from headrace.services.trainer.model.model import Policy, ValueModel
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.services.trainer.stages.offline.packing_check import must_join
from headrace.services.trainer.stages.offline.sft import Supervised
from headrace.services.trainer.stages.offline.step import OfflineStep
from headrace.wire.errors import ConfigError
from headrace.wire.weights import join_groups, snapshot_groups, tensors_of
from tests.families import tiny_family
from tests.integration.trainer.backends import work
from tests.ranks import through_checkpoint
from tests.unit.services.trainer.families import family
from tests.unit.services.trainer.stages.stage_builders import examples

SIZES = (1, 3, 16)


def gradients(options, **kind):
    """One step's gradient for each micro-batch size."""

    def case(make, folder):
        found = {}
        for size in SIZES:
            backend = make(work.policy(**kind), options)
            gradient = work.gradient(backend, size, folder / "moments")
            found |= {f"{size}/{name}": value for name, value in gradient.items()}
        return {}, found

    return case


def steps(options, **kind):
    """Losses and gradient norms of four clipped steps, and the state after them."""

    def case(make, folder):
        backend = make(work.policy(**kind), options)
        seen = [work.one_step(backend, clip=0.1) for _ in range(4)]
        weights = {f"weights/{name}": value.clone() for name, value in backend.whole_weights()}
        return {"seen": seen}, weights | {
            f"state/{name}": value.clone() for name, value in backend.whole_state().items()
        }

    return case


def family_steps(options, kind, **more):
    """One step's gradient in float32, and five steps in float64, of a tiny model of a family."""

    def case(make, folder):
        def made(dtype):
            model = tiny_family(kind, **more).to(dtype).train()
            # Grouped products of experts exist in lower dtypes alone.
            model.set_experts_implementation("eager")
            return make(Policy(model, forward_dtype=dtype), options)

        found = {f"gradient/{name}": value for name, value in work.gradient(made(torch.float32), 3, folder).items()}
        exact = made(torch.float64)
        seen = [work.one_step(exact) for _ in range(5)]
        return {"seen": seen}, found | {f"weights/{name}": value for name, value in exact.whole_weights()}

    return case


def mishaps(options, **kind):
    """A step given up in its middle, one whose gradient is not finite, and a look at the model inside of a step."""

    def case(make, folder):
        backend = make(work.policy(**kind), options)
        work.one_step(backend)
        before = {name: value.clone() for name, value in backend.whole_weights()}
        # All ranks have the same rows: each takes its share.
        data, tokens = work.rows()[:4], 10 * backend.ranks.size
        backend.backward(work.micro_loss(backend, data, tokens), last=False)
        backend.discard()
        backend.discard()
        backend.backward(work.micro_loss(backend, data, tokens) * math.nan, last=True)
        norm = backend.apply(learning_rate=1.0, grad_clip=1.0)
        unchanged = all(torch.equal(before[name], value) for name, value in backend.whole_weights())
        loss = work.micro_loss(backend, data, tokens)
        with torch.no_grad(), backend.module.adapters_off():
            other = work.micro_loss(backend, data, tokens) * backend.ranks.size
        backend.backward(loss, last=True)
        backend.apply(learning_rate=1e-2, grad_clip=0.0)
        seen = [work.one_step(backend), (float(other), float(loss.detach()) * backend.ranks.size)]
        weights = {name: value.clone() for name, value in backend.whole_weights()}
        return {"finite": math.isfinite(norm), "unchanged": unchanged, "seen": seen}, weights

    return case


def save(options, name):
    """A checkpoint after three steps, and the loss of the fourth."""

    def case(make, folder):
        backend = make(work.policy(), options)
        for _ in range(3):
            work.one_step(backend)
        through_checkpoint(folder / name, backend.ranks, state_of("model", "optimizer", backend))
        return {"seen": [work.one_step(backend)]}, dict(backend.whole_weights())

    return case


def resume(options, name):
    """The fourth step, by another backend or number of ranks, from the checkpoint after three."""

    def case(make, folder):
        backend = make(work.policy(seed=9), options)
        work.one_step(backend)
        saved = CheckpointStore(folder / name, keep=1).newest()
        backend.load(saved.weights, saved.optimizer)
        return {"seen": [work.one_step(backend)]}, dict(backend.whole_weights())

    return case


def frozen(options, **kind):
    """A frozen model's scores: before, on the way to, and after it was given other weights."""

    def case(make, folder):
        backend = make(work.policy(), options)
        asked = make_frozen(work.policy(seed=9), backend.ranks, torch.device("cpu"))
        asked.ranks = backend.ranks
        seen = [float(work.micro_loss(asked, work.rows()[:3], 10))]
        for share in (0.25, 1.0):
            asked.load(dict(backend.whole_weights()), share=share)
            seen.append(float(work.micro_loss(asked, work.rows()[:3], 10)))
        return {"seen": seen}, {}

    return case


def values(options):
    """Three steps of a critic with two outputs, beside a policy in the same process."""

    def case(make, folder):
        backend, policy = make(work.critic(), options), make(work.policy(), options)
        seen = []
        for _ in range(3):
            seen += [work.value_step(backend), work.one_step(policy)]
        return {"seen": seen}, {name: value.clone() for name, value in backend.whole_weights()}

    return case


def publications(options):
    """What two steps of a mixture of experts (with a buffer, and float32 beside bfloat16) are published as."""

    def case(make, folder):
        backend = make(work.experts(), options)
        seen = [work.one_step(backend) for _ in range(2)]
        groups = weight_groups(backend, torch.bfloat16)
        if backend.ranks.rank:
            join_groups(groups, bucket_bytes=2048)
            return {}, {}
        snapshot = snapshot_groups(groups, bucket_bytes=2048)
        return {"seen": seen}, {name: tensor.clone() for name, tensor in tensors_of(snapshot.plan, snapshot.buckets)}

    return case


def refusals(make, folder):
    """What cannot be combined, and the reasons given."""
    reasons = []
    for options, kind in (
        (work.options("fsdp2", optimizer=work.EIGHT_BIT), {}),
        (work.options("deepspeed", optimizer=work.MUON), {}),
        (work.options("single"), {}),
        (zero(3), {"lora": work.QLORA}),
        (work.options("deepspeed", zero_stage=3, compiled=True), {}),
    ):
        try:
            make(work.policy(**kind), options)
        except ConfigError as error:
            reasons.append(str(error))
    return reasons, {}


def divided(make, folder):
    """The reasons against families that pass on more than attention, and a sum of gradients after the checks."""
    reasons = []
    linear = family("qwen3_next")
    critic = AutoModelForSequenceClassification.from_config(linear.config)
    critic.base_model.load_state_dict(linear.base_model.state_dict())
    torch.nn.init.zeros_(critic.score.weight)
    by_length = tiny_family("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    refused = [
        Policy(one, forward_dtype=torch.float32) for one in (linear, family("mamba2"), family("gemma2"), by_length)
    ]
    for module in (*refused, ValueModel(critic, forward_dtype=torch.float32)):
        try:
            make(module, FSDP2)
        except ConfigError as error:
            reasons.append(str(error))
    module = work.policy()
    make(module, FSDP2)
    return {"reasons": reasons, "left": [name for name, one in module.named_parameters() if one.grad is not None]}, {}


def saved(options):
    """Bytes that autograd keeps of a row of 16,384 tokens, less those of the weights."""

    def case(make, folder):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=work.VOCAB,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=16384,
        )
        backend = make(Policy(LlamaForCausalLM(config).train(), forward_dtype=torch.float32), options)
        ids, kept = torch.zeros(1, 16384, dtype=torch.long), {}

        def keep(tensor):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes() if 16384 // 2 in tensor.shape or 16384 in tensor.shape else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            places = torch.arange(0, 16384, 64)
            scores = backend(ids, torch.zeros_like(places), places, places % 64, torch.ones(len(places)), 0)
        loss = scores.logprobs.sum()
        backend.backward(loss)
        return {"seen": [float(loss.detach())], "bytes": sum(kept.values())}, {}

    return case


def packing(options):
    """Whether packed examples see each other: in a model of ours they do not, two others are refused with reasons."""

    def case(make, folder):
        reasons = []
        for kind in ("opt", "qwen3_next"):
            try:
                must_join(make(Policy(family(kind), forward_dtype=torch.float32), options), chunk=8)
            except ConfigError as error:
                reasons.append(str(error))
        dtypes = (torch.float32, torch.bfloat16)
        joined = [must_join(make(work.policy(dtype=dtype), options), chunk=8) for dtype in dtypes]
        return {"joined": joined, "reasons": reasons}, {}

    return case


def offline(options):
    """What two steps on examples tell: each rank has peaks of its own."""

    def case(make, folder):
        backend = make(work.policy(), options)
        rank = backend.ranks.rank
        peaks = {"rising": 10.0 + rank, "falling": 100.0 - rank, "unknown": 0.0}
        objective = Supervised(pack_tokens=0, logprob_chunk=8)
        step = OfflineStep(backend, objective, micro_batch_tokens=20, peaks=lambda: peaks)
        return {"told": [step.train(examples(7), learning_rate=1e-3, grad_clip=1.0) for _ in range(2)]}, {}

    return case


def zero(stage):
    return work.options("deepspeed", zero_stage=stage, persistent_elements=0)


FSDP2 = work.options("fsdp2")
FAMILIES = {
    "dense": ("qwen2", {"tie_word_embeddings": False}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "window": ("mistral", {"sliding_window": 3}),
    "latent": ("deepseek_v3", {}),
    "mixture": ("qwen3_moe", {}),
}
"""What is kept in attention, or between tokens, differs."""
CASES = {
    **{f"family-{name}": family_steps(FSDP2, kind, **more) for name, (kind, more) in FAMILIES.items()},
    "fsdp2-gradients": gradients(FSDP2),
    "fsdp2-steps": steps(FSDP2, tied=False, checkpointing=True),
    "fsdp2-offloaded": steps(work.options("fsdp2", cpu_offload=True), tied=False, checkpointing=True),
    "fsdp2-mishaps": mishaps(FSDP2, lora=work.LORA),
    "fsdp2-lora": steps(FSDP2, lora=work.LORA),
    "fsdp2-qlora": steps(FSDP2, lora=work.QLORA),
    "fsdp2-part": steps(FSDP2, trained="layers 1-, norms"),
    "fsdp2-offline": offline(FSDP2),
    "fsdp2-experts": publications(FSDP2),
    "fsdp2-values": values(FSDP2),
    "fsdp2-bfloat16": steps(FSDP2, dtype=torch.bfloat16),
    "fsdp2-muon": steps(work.options("fsdp2", optimizer=work.MUON)),
    "fsdp2-frozen": frozen(FSDP2),
    "fsdp2-packing": packing(FSDP2),
    "fsdp2-save": save(FSDP2, "fsdp2"),
    "refusals": refusals,
    "divided": divided,
    "saved": saved(FSDP2),
    "zero2-qlora": steps(zero(2), lora=work.QLORA),
    "zero3-gradients": gradients(zero(3)),
    "zero3-steps": steps(zero(3), tied=False, checkpointing=True),
    "zero3-mishaps": mishaps(zero(3), lora=work.LORA),
    "zero3-experts": publications(zero(3)),
    "zero3-save": save(zero(3), "zero3"),
}
"""What two ranks do: each kind of case on FSDP2, half of them on DeepSpeed's most divided stage, too."""
