"""What the two judges share: the chat model, its canaries, and their state for people."""

from collections.abc import Mapping

from headrace.services.reward.judge.canaries import CanaryWatch
from headrace.services.reward.judge.chat import ChatJudge
from headrace.services.reward.judge.cost import Cost
from headrace.services.reward.judge.settings import ChatOptions
from headrace.services.reward.judge.verdicts import Allowed
from headrace.services.reward.scorer import Context, Reads, Scorer


class JudgeScorer(Scorer):
    """A scorer that asks a chat model for verdicts; scores are in 0..1."""

    low, high = 0.0, 1.0
    reads: Reads = "answer"

    def __init__(self, options: ChatOptions, context: Context, form: Mapping[str, Allowed]) -> None:
        """`form`: the verdict's form. Raises ConfigError for an endpoint that cannot work or must not be called."""
        self._chat = ChatJudge(options, context, form)
        self.canaries = CanaryWatch(context.component, options.canaries_every, options.canary_above)

    @property
    def cost(self) -> Cost:
        """Tokens and money so far."""
        return self._chat.cost

    @property
    def alarm(self) -> str | None:
        """For people: canaries have fooled the judge. None = all is well."""
        return self.canaries.alarm

    async def load(self) -> None:
        """Looks at the endpoint's address; raises ConfigError."""
        await self._chat.endpoint.check()

    async def close(self) -> None:
        """Drops the canary and the connections."""
        await self.canaries.close()
        await self._chat.endpoint.close()
