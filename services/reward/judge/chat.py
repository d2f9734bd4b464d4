"""Asks a chat model for a verdict of a given form."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from headrace.services.reward import metrics
from headrace.services.reward.endpoint import Endpoint, EndpointError, RequestBudget
from headrace.services.reward.judge.cost import Cost
from headrace.services.reward.judge.prompts import Messages
from headrace.services.reward.judge.settings import ChatOptions
from headrace.services.reward.judge.verdicts import Allowed, MalformedVerdictError, read_verdict, schema
from headrace.services.reward.scorer import Context, ScorerDownError

_PATH = "/chat/completions"


class ChatJudge:
    """One model at one endpoint, and what it has cost."""

    def __init__(self, options: ChatOptions, context: Context, form: Mapping[str, Allowed]) -> None:
        """Raises ConfigError for an endpoint that cannot work or must not be called."""
        self._options, self._form, self._name = options, form, context.component
        self._timeout_s = context.timeout_s
        self.endpoint = Endpoint(**options.endpoint, context=context, what="judge")
        self.cost = Cost(context.component, options.price_in, options.price_out)

    def errand(self) -> RequestBudget:
        """A request budget for one call of the scorer: it ends by the scorer's deadline."""
        return RequestBudget(self._timeout_s)

    async def ask(self, messages: Callable[[str], Messages], errand: RequestBudget) -> dict[str, Any]:
        """Returns the verdict, in the form asked for. `messages` makes a conversation with a fresh key.

        All tries together end by the deadline, and by the request budget's. Raises EndpointError when no
        verdict came, ScorerDownError when the endpoint serves no request.
        """
        try:
            async with self.endpoint.turn(errand) as until:
                return await self._ask(messages, until)
        except EndpointError as error:
            if error.kind == "down":
                raise ScorerDownError(error.message) from error
            raise

    async def _ask(self, messages: Callable[[str], Messages], until: float) -> dict[str, object]:
        for asked in range(self._options.reasks + 1):
            answer = await self.endpoint.post(_PATH, self._body(messages(secrets.token_hex(16))), until=until)
            self.cost.add(answer)
            try:
                found = read_verdict(_content(answer), self._form)
            except MalformedVerdictError as error:
                metrics.JUDGE_VERDICTS.labels(self._name, "malformed").inc()
                if asked == self._options.reasks:
                    message = f"{self.endpoint.what}: malformed verdict, asked {asked + 1} times: {error}"
                    raise EndpointError("bad_answer", message) from error
            else:
                metrics.JUDGE_VERDICTS.labels(self._name, "read").inc()
                return found
        raise AssertionError("the last ask returns or raises")

    def _body(self, messages: Messages) -> dict[str, object]:
        options = self._options
        body = {
            **options.extra_body,
            "model": options.model,
            "messages": messages,
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }
        if options.response_format == "json_schema":
            named = {"name": "verdict", "strict": True, "schema": schema(self._form)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif options.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body


def _content(answer: Any) -> str:
    """The one choice's text; raises MalformedVerdictError."""
    try:
        (choice,) = answer["choices"]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedVerdictError("no chat completion with one choice") from None
    if finish == "length":
        raise MalformedVerdictError("cut off at max_tokens")
    if not isinstance(content, str):
        raise MalformedVerdictError("the message has no text")
    return content
