"""URLs that are shown have no passwords, and stay what they are else."""

import pytest

from headrace.wire.peers.urls import without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://me:secret@host:6379/0", "redis://host:6379/0"),
        ("redis://:p@ss@host/1", "redis://host/1"),
        ("rediss+sentinel://a:b@one:1,two:2/x", "rediss+sentinel://one:1,two:2/x"),
        ("one http://u:p@a/ and http://b/c@d", "one http://a/ and http://b/c@d"),
        ("me@host", "me@host"),
        ("https://host/path?mail=a@b", "https://host/path?mail=a@b"),
    ],
)
def test_each_url_of_a_text_loses_its_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
