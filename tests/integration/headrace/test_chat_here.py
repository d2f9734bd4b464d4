"""`headrace chat` with a model's folder: the conversation so far is the prompt, by the model's chat template."""

import io
import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from tests.verbs import ended, result, said

GREEDY = ("--temperature", 0, "--max-tokens", 6)


def test_a_turn_of_a_chat_is_answered_as_the_whole_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.txt").write_text("how many nuts? ten bolts\n" * 9)
    model = tmp_path / "model"
    said("make-model", "--tokenizer-from", tmp_path / "words.txt", "--vocab-size", 300, "--seed", 1, "--out", model)
    weights = load_file(model / "model.safetensors")
    # Of larger matrices, answers depend on all that is before them.
    larger = {name: value * 10 if value.ndim == 2 else value for name, value in weights.items()}
    save_file(larger, model / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr("sys.stdin", io.StringIO("how many nuts?\n\nten bolts\n"))
    lines = said("chat", model, *GREEDY, "--system", "nuts", "--json").splitlines()
    first, second = (json.loads(line)["text"] for line in lines)
    messages = [
        {"role": "system", "content": "nuts"},
        {"role": "user", "content": "how many nuts?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "ten bolts"},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    whole = result("generate", model, *GREEDY, "--messages", tmp_path / "chat.json")
    assert whole["text"] == second and whole["usage"]["completion_tokens"] == 6


def test_a_place_without_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ended("chat", tmp_path)
    assert found.status == 2 and f"{tmp_path} is not a run directory" in found.complaint
    write_model(tmp_path, character_tokenizer("ab"), Shape(layers=1), seed=0)
    (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n"))
    found = ended("chat", tmp_path)
    assert found.status == 2 and "holds no safetensors" in found.complaint
