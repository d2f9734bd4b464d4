"""Low-rank adapters on the real server: loaded beside the one in use, proved by digests and logprobs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headrace.services.rollout.engines.sglang.adapters import adapter_digests
from headrace.services.rollout.engines.sglang.engine import SGLangEngine
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.lora import adapter_config
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.wire.config.settings import LoraTable
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes
from headrace.wire.errors import ContractError
from headrace.wire.v1 import rollout_pb2
from tests.rollout_models import make_model, make_request, random_prompts, reference_logprobs, save_folder
from tests.sglang import engine_of, sglang_settings, sglang_venv

pytestmark = pytest.mark.sglang

LORA = LoraTable(rank=4, alpha=8, targets=("q_proj", "v_proj", "o_proj", "down_proj"))


class Adapters:
    """A trainer of adapters: each version has other random ones."""

    def __init__(self, folder: Path) -> None:
        # A multiple of 32: on a CPU SGLang pads the inner size of an MLP to one, but not the adapters of it.
        model = make_model(max_position_embeddings=4096, intermediate_size=96)
        self.model_path = save_folder(model, folder / "model")
        self.policy = load_policy(self.model_path, device="cpu", forward_dtype=torch.float32, lora=LORA)
        self.backend = SingleDevice(self.policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
        self.publisher = Publisher(
            host="127.0.0.1",
            dtype=torch.float32,
            bucket_bytes=4096,
            weights_folder=folder / "weights",
            model_path=self.model_path,
            disk_only=False,
            adapter_config=adapter_config(LORA, "model"),
            canary=lambda policy: make_canary(policy, seed=1, length=12, tolerance=1e-4, chunk=8),
        )

    async def publish(self, engine: SGLangEngine, version: int) -> float:
        """Through all acts; returns the canary's gap."""
        torch.manual_seed(version)
        with torch.no_grad():
            for name, weight in self.policy.named_weights():
                if ".lora_B." in name:
                    weight.copy_(torch.randn_like(weight) * 0.2)
        held = self.publisher.hold(self.backend, version)
        target = PolicyVersion(incarnation=1, version=version)
        await engine.prepare(target, held.snapshot.plan, 10)
        request = rollout_pb2.ReceiveWeightsRequest(disk_path=await self.publisher.save(version))
        digests = await engine.receive(held.snapshot.plan, request, 20)
        assert digests == [bucket.digest for bucket in held.snapshot.plan.buckets] and len(digests) > 1
        await engine.install(target, held.digest, 20)
        assert await engine.checksums(10) == {}
        found = await engine.score(ids_from_bytes(held.canary.token_ids), 10)
        await engine.resume(10)
        return float(np.abs(found - floats_from_bytes(held.canary.logprobs)).max())

    def merged(self) -> torch.nn.Module:
        """The newest version as one model."""
        model = AutoModelForCausalLM.from_pretrained(self.model_path)
        model.load_state_dict(self.policy.whole_state())
        whole: torch.nn.Module = model.eval()
        return whole


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Adapters:
    sglang_venv()
    return Adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture
async def engine(adapters: Adapters, tmp_path: Path) -> AsyncIterator[SGLangEngine]:
    (tmp_path / "logs").mkdir()
    settings = sglang_settings(adapters.model_path, tmp_path, {"venv": sglang_venv()})
    table = settings.model.model_copy(update={"lora": LORA})
    async with engine_of(settings.model_copy(update={"model": table})) as made:
        yield made


async def test_adapters_serve_their_version_and_running_rollouts_go_on_under_the_next(
    engine: SGLangEngine, adapters: Adapters
) -> None:
    assert not engine.in_place and engine.checksum_format == ""
    assert await adapters.publish(engine, 1) < 1e-5
    (prompt,) = random_prompts(9)
    first = adapters.merged()
    (rollout,) = await engine.generate(make_request(prompt, 1, max_tokens=20))
    np.testing.assert_allclose(rollout.logprobs, reference_logprobs(first, prompt, rollout.token_ids)[0], atol=1e-5)
    assert [span.version.version for span in rollout.spans] == [1]

    under_way = asyncio.create_task(engine.generate(make_request(prompt, 3, max_tokens=1000, stop_token_ids=())))
    async with asyncio.timeout(60):
        while (await engine._client.loads(30))[0] < 3:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert await adapters.publish(engine, 2) < 1e-5
    second = adapters.merged()
    for each in await under_way:
        old, new = each.spans
        assert (old.version.version, new.version.version, new.end) == (1, 2, 1000)
        for model, span in ((first, old), (second, new)):
            wanted = reference_logprobs(model, prompt, each.token_ids)[0][span.start : span.end]
            np.testing.assert_allclose(each.logprobs[span.start : span.end], wanted, atol=1e-4)

    damaged = adapters.publisher.hold(adapters.backend, 3)
    path = Path(await adapters.publisher.save(3)) / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert adapter_digests(damaged.snapshot.plan, path) != [b.digest for b in damaged.snapshot.plan.buckets]
    with pytest.raises(ContractError, match="from the disk only"):
        await engine.receive(
            damaged.snapshot.plan, rollout_pb2.ReceiveWeightsRequest(collective=rollout_pb2.CollectiveGroup()), 5
        )
    await engine.discard()
    assert [s.version.version for s in (await engine.generate(make_request(prompt, 1)))[0].spans] == [2]
