"""Value models: out of causal models, out of reward models, and back into a folder."""

import json

import pytest
import torch
from structlog.testing import capture_logs
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.loading import load_policy, load_value_model
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.builders import VOCAB, tiny_config, tiny_folder
from tests.unit.services.trainer.families import family

IDS = torch.tensor([[3, 7, 11, 2, 5, 19], [4, 4, 8, 0, 0, 0]])
ROWS, PLACES = torch.tensor([0, 0, 1]), torch.tensor([1, 5, 2])


def value_model(path, **kwargs):
    return load_value_model(path, device="cpu", forward_dtype=torch.float32, **kwargs)


@pytest.fixture
def reward_model(tmp_path):
    """A folder as the reward-model stage writes it."""
    source = tiny_folder(tmp_path / "model")
    trained = value_model(source)
    with torch.no_grad():
        trained.head.copy_(torch.linspace(-1, 1, 16)[None])
    export_model(SingleDevice(trained), source, tmp_path / "rm", dtype=torch.float32)
    return tmp_path / "rm"


@pytest.mark.parametrize("tied", [True, False])
def test_a_causal_model_gives_the_body_and_a_head_of_zeros(tmp_path, tied):
    source = tiny_folder(tmp_path / "model", tied=tied)
    model, policy = value_model(source, outputs=3), load_policy(source, device="cpu", forward_dtype=torch.float32)
    values = model(IDS, ROWS, PLACES)
    assert values.shape == (3, 3) and not values.any()
    torch.testing.assert_close(model.hidden(IDS), policy.hidden(IDS))
    names = [name for name, _ in model.named_weights()]
    assert "score.weight" in names and "lm_head.weight" not in names


def test_a_reward_model_loads_in_transformers_and_gives_a_critic_its_head(reward_model):
    config = json.loads((reward_model / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForSequenceClassification"]
    theirs = AutoModelForSequenceClassification.from_pretrained(reward_model, num_labels=1)
    expected = theirs(IDS[:1]).logits[0]
    values = value_model(reward_model)(IDS, ROWS, PLACES)
    torch.testing.assert_close(values[1], expected)
    assert float(values.detach().abs().max()) > 0.1


def test_a_quantile_critic_comes_back_from_its_folder_and_gives_no_other_number(tmp_path, reward_model):
    critic = value_model(reward_model, outputs=5)
    export_model(SingleDevice(critic), reward_model, tmp_path / "critic", dtype=torch.float32)
    again = value_model(tmp_path / "critic", outputs=5)
    torch.testing.assert_close(again(IDS, ROWS, PLACES), critic(IDS, ROWS, PLACES))
    with pytest.raises(ConfigError, match="has 5 labels; a value model of 3 outputs"):
        value_model(tmp_path / "critic", outputs=3)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=16, n_layer=2, n_head=2))


@pytest.mark.parametrize("make", [gpt2, lambda: Qwen3ForCausalLM(tiny_config(attention_dropout=0.5))])
def test_dropout_is_off_in_training_as_in_the_engine(tmp_path, make):
    torch.manual_seed(0)
    make().save_pretrained(tmp_path)
    with capture_logs() as logs:
        policy = load_policy(tmp_path, device="cpu", forward_dtype=torch.float32)
    assert policy.training
    first = policy.hidden(IDS)
    assert torch.equal(first, policy.hidden(IDS))
    assert torch.equal(first, policy.eval().hidden(IDS))
    assert not any(value for key, value in policy.model.config.to_dict().items() if "drop" in key)
    (line,) = [entry for entry in logs if entry["event"] == "dropout_off"]
    assert any(value > 0 for value in line["was"].values())


@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        ("phimoe", {}),
        ("phimoe", {"input_jitter_noise": 0.1}),
        ("mixtral", {"router_jitter_noise": 0.1}),
        ("minimax", {"router_jitter_noise": 0.1}),
    ],
)
def test_router_jitter_is_off_in_training_as_in_the_engine(tmp_path, kind, noise):
    whole = family(kind, **noise).eval()
    whole.save_pretrained(tmp_path)
    policy = load_policy(tmp_path, device="cpu", forward_dtype=torch.float32, gradient_checkpointing=True)
    policy.model.train()
    first = policy.hidden(IDS)
    assert torch.equal(first, policy.hidden(IDS))
    torch.testing.assert_close(first, whole.get_decoder()(input_ids=IDS).last_hidden_state)
    first.sum().backward()
    assert all(weight.grad is not None for name, weight in policy.model.named_parameters() if "lm_head" not in name)


@pytest.mark.parametrize("load", [load_policy, load_value_model])
def test_a_model_with_a_noise_of_its_own_is_refused(tmp_path, monkeypatch, load):
    own = Qwen3MLP.forward
    monkeypatch.setattr(
        Qwen3MLP, "forward", lambda mlp, x: own(mlp, x) + (0.01 * torch.randn_like(x) if mlp.training else 0)
    )
    with pytest.raises(ConfigError, match="a qwen3 model computes otherwise in train mode"):
        load(tiny_folder(tmp_path), device="cpu", forward_dtype=torch.float32)
