"""What is done in a world of ranks: each case gives numbers and tensors, the same on one device."""

from safetensors.torch import load_file, save_file

from tests.integration.trainer.backends import work

SIZES = (1, 3, 16)


def gradients(options, **kind):
    """One step's gradient for each micro-batch size."""

    def case(make, folder):
        found = {}
        for size in SIZES:
            backend = make(work.policy(**kind), options)
            found |= {f"{size}/{name}": value for name, value in work.gradient(backend, size).items()}
        return {}, found

    return case


def steps(options, **kind):
    """Losses and gradient norms of four clipped steps, and the state after them."""

    def case(make, folder):
        backend = make(work.policy(**kind), options)
        seen = [work.one_step(backend, clip=0.1) for _ in range(4)]
        weights = dict(backend.whole_weights())
        state = {f"state/{name}": value for name, value in backend.whole_state().items()}
        return {"seen": seen}, {name: value.clone() for name, value in (weights | state).items()}

    return case


def save(options, **kind):
    """A checkpoint after three steps, and the loss of the fourth."""

    def case(make, folder):
        backend = make(work.policy(**kind), options)
        for _ in range(3):
            work.one_step(backend)
        weights = {name: value.clone() for name, value in backend.whole_weights()}
        optimizer = {name: value.clone() for name, value in backend.optimizer_tensors().items()}
        if backend.ranks.rank == 0:
            save_file(weights, folder / "saved-weights.safetensors")
            save_file(optimizer, folder / "saved-optimizer.safetensors")
        return {"seen": [work.one_step(backend)]}, dict(backend.whole_weights())

    return case


def resume(options, **kind):
    """The fourth step, by another backend or number of ranks, from the checkpoint after three."""

    def case(make, folder):
        backend = make(work.policy(seed=9, **kind), options)
        backend.load(load_file(folder / "saved-weights.safetensors"), load_file(folder / "saved-optimizer.safetensors"))
        return {"seen": [work.one_step(backend)]}, dict(backend.whole_weights())

    return case


CASES = {
    "fsdp2-gradients": gradients(work.options("fsdp2")),
    "fsdp2-steps": steps(work.options("fsdp2"), tied=False, checkpointing=True),
    "fsdp2-lora": steps(work.options("fsdp2"), lora=work.LORA),
    "fsdp2-save": save(work.options("fsdp2")),
    "fsdp2-resume": resume(work.options("fsdp2")),
}
