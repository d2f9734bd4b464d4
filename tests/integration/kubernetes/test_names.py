"""Every name that a manifest uses exists, and every config fits the pods that run it."""

import re
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.wire.process.environment import NAMES
from tests.integration.kubernetes.rendered import ALL, containers, named, pods, render

OPTIONAL = {"dashboard-tls"}
"""Made by cert-manager."""
YOURS = {"engine", "hub", "trackers"}
"""Secrets that the docs tell to make."""
GPU = "nvidia.com/gpu"


def there(name, kind):
    return {one["metadata"]["name"]: one for one in render(name) if one["kind"] == kind}


@pytest.mark.parametrize("name", ALL)
def test_volumes_and_variables_refer_to_existing_objects(name):
    maps, secrets, claims = there(name, "ConfigMap"), there(name, "Secret"), there(name, "PersistentVolumeClaim")
    accounts = there(name, "ServiceAccount")
    certificates = {one["spec"]["secretName"] for one in there(name, "Certificate").values()}
    for where, template in pods(render(name)):
        spec = template["spec"]
        assert spec["serviceAccountName"] in accounts, where
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps, where
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets.keys() | YOURS | certificates, where
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims, where
        mounted = {volume["name"] for volume in spec["volumes"]}
        used = [m["name"] for c in (*spec["containers"], *spec.get("initContainers", ())) for m in c["volumeMounts"]]
        assert set(used) == mounted, where
    for where, _, container, _ in containers(render(name)):
        for variable in container.get("env", ()):
            source = variable.get("valueFrom", {})
            if "configMapKeyRef" in source:
                given = source["configMapKeyRef"]
                assert given["key"] in maps[given["name"]]["data"] or given.get("optional"), where
            if "secretKeyRef" in source:
                assert source["secretKeyRef"]["name"] in YOURS and source["secretKeyRef"]["optional"], where


@pytest.mark.parametrize("name", ALL)
def test_every_variable_in_a_command_is_set_and_every_one_of_ours_is_known(name):
    by_leader = {"LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"}
    for where, _, container, _ in containers(render(name)):
        given = {variable["name"] for variable in container.get("env", ())}
        line = " ".join([*container["command"], *container.get("args", ())])
        assert set(re.findall(r"\$\((\w+)\)", line)) <= given | by_leader, where
        assert {variable for variable in given if variable.startswith("HEADRACE_")} <= NAMES, where


@pytest.mark.parametrize("name", ALL)
def test_services_monitors_and_scalers_match_existing_pods(name):
    labels = [template["metadata"]["labels"] for _, template in pods(render(name))]
    ports = [port for _, _, container, _ in containers(render(name)) for port in container.get("ports", ())]
    kinds = {(one["kind"], one["metadata"]["name"]) for one in render(name)}
    for one in render(name):
        spec, where = one.get("spec", {}), f"{one['kind']}/{one['metadata']['name']}"
        if one["kind"] == "Service":
            assert any(spec["selector"].items() <= found.items() for found in labels), where
            assert {port["targetPort"] for port in spec["ports"]} <= {port["name"] for port in ports}, where
        if one["kind"] == "PodDisruptionBudget":
            assert any(spec["selector"]["matchLabels"].items() <= found.items() for found in labels), where
        if one["kind"] == "PodMonitor":
            assert {end["port"] for end in spec["podMetricsEndpoints"]} <= {port["name"] for port in ports}, where
        if one["kind"] in ("ScaledObject", "HorizontalPodAutoscaler"):
            target = spec["scaleTargetRef"]
            assert (target["kind"], target["name"]) in kinds, where
            assert "replicas" not in there(name, target["kind"])[target["name"]]["spec"], where
        if one["kind"] == "Ingress":
            for rule in spec["rules"]:
                for path in rule["http"]["paths"]:
                    assert ("Service", path["backend"]["service"]["name"]) in kinds, where
        assert one["metadata"].get("namespace", "headrace") == "headrace", where


@pytest.mark.parametrize("name", ["single-node-gpu", "cluster"])
def test_the_run_file_is_a_config_and_fits_the_pods(name, tmp_path):
    manifests = render(name)
    file = tmp_path / "run.toml"
    file.write_text(named(manifests, "ConfigMap", "run-file")["data"]["run.toml"])
    config = resolve(file).config
    told = named(manifests, "ConfigMap", "headrace")["data"]
    jobs = [one for one in manifests if one["kind"] == "JobSet"]
    nodes = jobs[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] if jobs else 1
    gpus = {where.rpartition("/")[2]: c["resources"]["limits"].get(GPU) for where, _, c, _ in containers(manifests)}
    assert config.model.path == Path(f"/runs/models/{told['MODEL']}")
    assert config.run.device == "cuda" and config.rollout.engine == "sglang"
    assert config.trainer.ranks == nodes * gpus["trainer"] and config.rollout.sglang.tp == gpus["rollout"]
