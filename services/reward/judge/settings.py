"""Options of the judges."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headrace.services.reward.endpoint.settings import EndpointOptions

_OURS = {"model", "messages", "n", "stream", "response_format", "temperature", "max_tokens"}


class ChatOptions(EndpointOptions):
    """What all judges share: the endpoint, its limits and its price."""

    model: str = Field(min_length=1)
    """As the endpoint calls it."""
    criteria: str = ""
    """What makes an answer good; empty = correct and complete."""
    template: str = ""
    """The request in the user's words, with places such as `$prompt`; empty = the built-in one."""
    template_file: Path | None = None
    """The same from a file."""
    reference: str = "answer"
    """Data column with the reference answer; a row without it is judged without."""
    reasoning: bool = True
    """The judge gives its reasons before its verdict."""
    temperature: float = Field(0.0, ge=0, le=2)
    """Sampling temperature of the judge."""
    max_tokens: int = Field(512, ge=8)
    """Longest verdict, in tokens; for a model that thinks first, thoughts included."""
    response_format: Literal["json_schema", "json_object", "off"] = "json_schema"
    """How the endpoint is asked to hold to the form; the verdict is checked strictly in every case."""
    block_chars: int = Field(16_000, ge=100)
    """Longest block (prompt, reference, answer); of longer ones head and tail are shown."""
    reasks: int = Field(1, ge=0)
    """Further requests where the verdict was malformed."""
    canaries_every: int = Field(64, ge=0)
    """After so many judged samples an empty-handed answer is judged too; 0 = never."""
    canary_above: float = Field(0.2, ge=0, le=1)
    """A canary that is scored higher has fooled the judge: the alarm."""
    price_in: float = Field(0.0, ge=0)
    """Price of a million prompt tokens, for the cost counter."""
    price_out: float = Field(0.0, ge=0)
    """Price of a million completion tokens."""
    extra_body: dict[str, object] = Field(default_factory=dict)
    """Further fields of the request, e.g. `chat_template_kwargs = { enable_thinking = false }`."""

    @field_validator("extra_body")
    @classmethod
    def _leaves_ours(cls, body: dict[str, object]) -> dict[str, object]:
        taken = sorted(_OURS & body.keys())
        if taken:
            raise ValueError(f"{', '.join(taken)}: the judge itself sets this; look among its options")
        return body


class JudgeOptions(ChatOptions):
    """`judge`: each answer for itself."""

    scale: tuple[int, int] = (1, 10)
    """Worst and best grade; mapped to 0..1."""
    votes: int = Field(1, ge=1)
    """Asks so often and takes the median; more than half must have been given. Needs a temperature above 0."""

    @model_validator(mode="after")
    def _fits(self) -> "JudgeOptions":
        low, high = self.scale
        if not 0 < high - low <= 100:
            raise ValueError(f"scale = {[low, high]}: the worst grade first, at most 100 apart")
        if self.votes > 1 and not self.temperature:
            raise ValueError(
                "votes at temperature 0 are one vote: set temperature, or have several judges in an ensemble"
            )
        return self


class PairwiseOptions(ChatOptions):
    """`pairwise_judge`: answers of one group against each other."""

    canary_above: float = Field(0.5, ge=0, le=1)
    """A canary that does better has fooled the judge: a win is 1, a tie 0.5."""
    against: Literal["group", "reference"] = "group"
    """Each answer meets others of its group, or the reference answer."""
    max_pairs: int = Field(32, ge=1)
    """Most pairs of one group; each pair is two requests, one in each order."""
