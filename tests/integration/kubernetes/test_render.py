"""Every overlay, and each component on the base, renders into objects that an API server would take."""

import pytest

from tests.integration.kubernetes.rendered import ALL, ROOT, pods, render
from tests.integration.kubernetes.schemas import check_custom, check_own, has_schema, is_own, need_schemas


@pytest.mark.parametrize("name", ALL)
def test_kubernetes_own_kinds_are_valid_strictly(name):
    for manifest in render(name):
        if is_own(manifest):
            check_own(manifest)
    for where, template in pods(render(name)):
        metadata = {**template.get("metadata", {}), "name": where.replace("/", "-").lower()}
        check_own({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})


@pytest.mark.parametrize("name", ALL)
def test_custom_kinds_are_valid_by_their_own_schemas_strictly(name):
    need_schemas()
    for manifest in render(name):
        if not is_own(manifest) and has_schema(manifest):
            check_custom(manifest)


def test_every_dashboard_is_a_config_map_that_kubectl_can_apply():
    files = {path.name for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")}
    maps = [one for one in render("base+grafana") if one["metadata"].get("labels", {}).get("grafana_dashboard")]
    assert files and {name for one in maps for name in one["data"]} == files
    # `kubectl apply` keeps the whole object in an annotation of at most 256 KiB.
    assert all(len(text) < 240_000 for one in maps for text in one["data"].values())
