"""What a user gets wrong is told before anything is asked, with the way out."""

from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.scorer import Context
from headrace.services.reward.scorers.registry import build_scorer
from headrace.wire.errors import ConfigError

URL = {"url": "https://judge.example/v1", "model": "m"}


def build(name: str = "judge", **options: Any) -> Any:
    return build_scorer(name, URL | options, Context(component=name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "options.model"),
        ({"url": "file:///x"}, "http://"),
        ({"url": "http://127.0.0.1/v1"}, "allow_hosts"),
        ({"scale": (5, 5)}, "worst grade first"),
        ({"scale": (0, 1000)}, "at most 100"),
        ({"votes": 3}, "temperature"),
        ({"template": "no place"}, r"\$answer is missing"),
        ({"template": "$answer $secret"}, r"\$secret is unknown"),
        ({"template": "$answer costs $5"}, r"write \$\$"),
        ({"template": "$answer", "template_file": "x"}, "not both"),
        ({"template_file": "/nowhere"}, "template_file"),
        ({"extra_body": {"messages": []}}, "the judge itself sets this"),
        ({"api_key_file": "/nowhere"}, "api_key_file"),
        ({"canaries": 3}, "canaries_every"),
        ({"deadline_s": 61}, r"deadline_s = 61 .* raise reward\.timeout_s"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_the_version_changes_with_every_option_that_affects_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "template"
    file.write_text("Judge: $answer")
    versions = [
        build().version,
        build(model="other").version,
        build(scale=(0, 5)).version,
        build(criteria="kind").version,
        build(template_file=str(file)).version,
        build(reasoning=False).version,
        build("pairwise_judge").version,
        build("pairwise_judge", against="reference").version,
    ]
    assert len(set(versions)) == len(versions)
    assert build().version == build(concurrency=1, retries=0, price_in=2.0).version
