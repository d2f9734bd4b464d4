"""Which machine of a trainer a launcher's variables name."""

from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import overlay
from headrace.wire.process.launcher import NodePlacement, node_placement

SLURM = {
    "SLURM_STEP_NODELIST": "gpu[07,9-12]-ib,m1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "1234567",
}
SKYPILOT = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5\n"}
KUBEFLOW = {"PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29400"}
CLUSTER = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "29400"}
TORCHRUN = CLUSTER | {"LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}
JOBSET = {"JOB_COMPLETION_INDEX": "1", "HEADRACE_RENDEZVOUS": "trainer-node-0-0.nodes:29500"}
OWN = {"HEADRACE_NODE": "1", "HEADRACE_RENDEZVOUS": "10.0.0.9:1"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (SLURM, (1, 2, "gpu07-ib:30067", "SLURM_NODEID")),
        (SLURM | {"SLURM_STEP_NODELIST": "gpu3"}, (1, 2, "gpu3:30067", "SLURM_NODEID")),
        (SKYPILOT, (1, 2, "10.0.0.4:29500", "SKYPILOT_NODE_RANK")),
        (KUBEFLOW, (1, 2, "job-node-0-0.job:29400", "PET_NODE_RANK")),
        (CLUSTER, (1, 2, "10.0.0.4:29400", "RANK")),
        (TORCHRUN, (1, 2, "10.0.0.4:29401", "RANK")),
        (TORCHRUN | KUBEFLOW, (1, 2, "10.0.0.4:29401", "RANK")),
        (JOBSET, (1, None, "trainer-node-0-0.nodes:29500", "JOB_COMPLETION_INDEX")),
        (OWN, (1, None, "10.0.0.9:1", "HEADRACE_NODE")),
        (SLURM | OWN, (1, 2, "10.0.0.9:1", "HEADRACE_NODE")),
        ({"HEADRACE_RENDEZVOUS": "a:1"}, (0, None, "a:1", "HEADRACE_RENDEZVOUS")),
    ],
)
def test_each_launcher_names_node_count_and_rendezvous(environment, place):
    assert node_placement(environment) == NodePlacement(*place)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # A batch script, a step of one task, an array of jobs: each is a run on one machine.
        {"SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_NODEID": "0"},
        SLURM | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0"},
        SKYPILOT | {"SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"},
        KUBEFLOW | {"PET_NNODES": "1", "PET_NODE_RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"JOB_COMPLETION_INDEX": "3"},
    ],
)
def test_a_single_task_has_no_place(environment):
    assert node_placement(environment) is None


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (SLURM | {"SLURM_STEP_NUM_TASKS": "16"}, r"SLURM_STEP_NUM_TASKS = 16 .* use `srun --ntasks-per-node=1"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "8"}, "LOCAL_WORLD_SIZE = 8: .* use `headrace train"),
        (SLURM | {"HEADRACE_NODE": "0"}, "HEADRACE_NODE makes this machine 0, but SLURM_NODEID makes .* 1 of 2: unset"),
        (SLURM | CLUSTER | {"WORLD_SIZE": "4"}, "machine 1 of 2, but RANK makes this machine 1 of 4"),
        (OWN | CLUSTER | SKYPILOT | {"SKYPILOT_NUM_NODES": "3"}, "SKYPILOT_NODE_RANK .* of 3, but RANK .* of 2"),
        (KUBEFLOW | {"PET_NNODES": "2:4"}, "PET_NNODES = '2:4'"),
        (SKYPILOT | {"SKYPILOT_NODE_IPS": " "}, "SKYPILOT_NODE_IPS is not set"),
        (CLUSTER | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"HEADRACE_NODE": "one"}, "HEADRACE_NODE = 'one'"),
    ],
)
def test_what_contradicts_or_cannot_be_obeyed_is_refused(environment, words):
    with pytest.raises(ConfigError, match=words):
        node_placement(environment)


CHANGES = {"trainer.nodes", "trainer.rendezvous"}
"""All that a launcher changes in a config: a count and an address."""


def test_launchers_change_nothing_of_a_config_but_count_and_address(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text('[data]\npath = "rows.jsonl"\n[trainer]\nranks = 4\n')
    plain = resolve(file).config.model_dump()
    for environment in (SLURM, SKYPILOT, KUBEFLOW, CLUSTER, TORCHRUN, JOBSET | {"HEADRACE_TRAINER__NODES": "2"}):
        place = node_placement(environment)
        found = resolve(file, environment=environment, place=place).config.model_dump()
        changed = {f"{table}.{key}" for table in plain for key in _differing(plain[table], found[table])}
        assert changed == CHANGES, environment
        assert found["trainer"]["nodes"] == 2 and found["trainer"]["rendezvous"] == place.rendezvous


def _differing(before, now):
    pairs = (before, now) if isinstance(before, dict) else ({"": before}, {"": now})
    return {key for key in pairs[0] if pairs[0][key] != pairs[1][key]}


def test_a_count_that_the_user_gives_otherwise_is_refused(tmp_path: Path):
    file, place = tmp_path / "run.toml", node_placement(SLURM)
    file.write_text('[data]\npath = "rows.jsonl"\n[trainer]\nranks = 6\n')
    with pytest.raises(ConfigError, match=r"trainer.nodes = 3, but SLURM_NODEID makes this machine 1 of 2"):
        resolve(file, arguments=["--trainer.nodes=3"], place=place)
    with pytest.raises(ConfigError, match=r"ranks = 1 .* nodes = 2"):
        resolve(file, arguments=["--trainer.ranks=1"], place=place)
    with pytest.raises(ConfigError, match=r"trainer.nodes = 1, but RANK makes"):
        overlay({"trainer": {}}, CLUSTER, ("node", "trainer"))
    with pytest.raises(ConfigError, match=r"HEADRACE_NODE = 1: trainer.nodes is 1"):
        overlay({}, OWN, ("node", "trainer"))
