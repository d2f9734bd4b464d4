"""URLs as they are shown. Pure."""

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """The text, with each URL in it without user and password.

    >>> without_credentials("redis://trainer:secret@host:6379/0")
    'redis://host:6379/0'
    """
    return _CREDENTIALS.sub("", text)
