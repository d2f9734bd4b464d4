"""`/api/actions/...`, and all other requests that change something and are answered in one sentence."""

from headrace.wire.api.model import ApiModel


class Said(ApiModel):
    """What was done."""

    said: str
