"""The command names what of a run others can read, and how to close each."""

from pathlib import Path

from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.doctor.exposure import exposures, in_words


def config(folder: Path, *arguments: str) -> RunFile:
    (folder / "run.toml").write_text('[model]\npath = "model"\n[data]\npath = "rows.jsonl"\n')
    return resolve(folder / "run.toml", arguments=arguments).config


def test_a_run_on_one_machine_has_no_exposures(tmp_path: Path) -> None:
    assert exposures(config(tmp_path), apart=False) == [] and in_words([]) == ""


def test_each_kind_of_traffic_between_machines_is_named_until_it_is_closed(tmp_path: Path) -> None:
    plain = exposures(config(tmp_path, "--broker.url", "redis://valkey:6379/0"), apart=True)
    kinds = [one.what.split()[0] for one in plain]
    assert kinds == ["gRPC", "the", "collective"] and 'trainer.publish = "disk"' in in_words(plain)
    closed = config(tmp_path, "--broker.url", "rediss://valkey:6379/0", "--trainer.publish", "disk")
    assert exposures(closed, apart=True, encrypts=True) == []
    (only,) = exposures(config(tmp_path, "--broker.url", "rediss://valkey:6379/0"), apart=True, encrypts=True)
    assert only.what == "collective traffic (weights to the replicas) is neither encrypted nor authenticated"
    nodes = ("--trainer.nodes", "2", "--trainer.ranks", "2", "--trainer.rendezvous", "10.0.0.4:29500")
    (between,) = exposures(config(tmp_path, *nodes, "--trainer.publish", "disk"), apart=False)
    assert "gradients between 2 machines" in between.what and "trainer.publish" not in between.way_out
