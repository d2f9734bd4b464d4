"""The real server as a teacher: the logprobs of transformers for each token, the vocabulary's last one included."""

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.registry import build_scorer
from tests.sglang import Server


async def test_each_token_has_the_logprob_of_transformers(server: Server) -> None:
    model = AutoModelForCausalLM.from_pretrained(server.model_path, dtype=torch.float32)
    prompt, said = [3, 4, 5], [7, model.config.vocab_size - 1, 2, 9]
    with torch.no_grad():
        whole = model(torch.tensor([[*prompt, *said]])).logits.log_softmax(-1)[0, 2:-1].numpy()
    sample = Sample(
        prompt="345",
        completion="",
        prompt_ids=np.array(prompt, np.int32),
        completion_ids=np.array(said, np.int32),
        logprobs=np.full(4, -1.0, np.float32),
    )
    host = server.url.removeprefix("http://")
    options = {"url": server.url, "api_key_file": str(server.api_key_file), "compare": False}
    teacher = build_scorer("teacher", options, Context(component="teacher", allow_hosts=(host,)))
    # The second time its prefix cache has the context.
    for _ in range(2):
        (found,) = await teacher.score([sample])
        np.testing.assert_allclose(found.token_scores, whole[np.arange(4), said] + 1, rtol=0, atol=1e-5)
        assert found.parts["agreement"] == np.mean(whole.argmax(axis=1) == said)
    await teacher.close()
