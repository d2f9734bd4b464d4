"""Writes rules.yaml: the rule files of deploy/prometheus/rules as PrometheusRules, which kustomize cannot make itself.

python deploy/kubernetes/components/monitoring/make_rules.py
"""

from pathlib import Path

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "prometheus" / "rules"
HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {name}
  namespace: headrace
spec:
"""


def rules() -> str:
    """What rules.yaml should hold."""
    parts = []
    for path in sorted(RULES.glob("*.yml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        body = "\n".join(f"  {line}" if line else "" for line in lines if line != "---")
        parts.append(HEAD.format(name=path.stem) + body + "\n")
    return "# Written by make_rules.py out of deploy/prometheus/rules.\n" + "---\n".join(parts)


if __name__ == "__main__":
    (HERE / "rules.yaml").write_text(rules(), encoding="utf-8")
