"""Renders an episode as a conversation for the terminal: whose words, tokens and versions, and what tools returned."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from headrace.wire.api.episodes import EpisodeView, MessageView

_INDENT = "    "


def conversation(episode: EpisodeView, logprobs: Sequence[float | None], finish_reason: str) -> Iterator[Text]:
    """Lines of the conversation, and how it ended. `logprobs`, [completion], are null for tokens that were read."""
    segment = None
    for message in episode.messages:
        if message.turn is not None and message.segment is not None and message.segment != segment:
            segment = message.segment
            yield from _begins(episode, segment)
        yield Text(_head(message, logprobs), style=_style(message))
        if message.content:
            yield from (Text(f"{_INDENT}{line}") for line in message.content.splitlines())
    yield Text(_end(episode, finish_reason), style="bold")
    named = [("reward", episode.reward), *episode.components.items(), *episode.metrics.items()]
    numbers = [f"{name} {value:g}" for name, value in named if value is not None]
    if numbers:
        yield Text(f"environment: {', '.join(numbers)}")


def _begins(episode: EpisodeView, number: int) -> Iterator[Text]:
    if len(episode.segments) < 2:
        return
    one = episode.segments[number]
    yield Text(f"segment {number + 1}: tokens {one.start} to {one.end}, context {one.context_tokens} tokens", "dim")


def _head(message: MessageView, logprobs: Sequence[float | None]) -> str:
    parts = [message.role]
    if message.turn is not None and message.start is not None and message.end is not None:
        parts = [f"policy, turn {message.turn + 1}", f"tokens {message.start} to {message.end} sampled"]
        if message.read_from is not None and message.read_from < message.start:
            parts.append(f"{message.start - message.read_from} before them read (masked)")
        own = [one for one in logprobs[message.start : message.end] if one is not None]
        parts += [f"logprob mean {sum(own) / len(own):.3f}, lowest {min(own):.3f}"] if own else []
        parts += [f"version {', '.join(message.versions)}"] if message.versions else []
        parts += [f"on {message.replica_id}"] if message.replica_id else []
    elif message.outcome:
        call = f"tool {message.name}({message.arguments})" if message.name else "a call of a tool"
        parts = [call, message.outcome]
    if message.seconds is not None:
        parts.append(f"{message.seconds:.3f} s")
    parts += [f"reward {message.reward:g}"] if message.reward is not None else []
    parts += [f"{message.cut} characters cut"] if message.cut else []
    return "; ".join(parts)


def _style(message: MessageView) -> str:
    return "bold cyan" if message.turn is not None else "yellow" if message.outcome else "dim"


def _end(episode: EpisodeView, finish_reason: str) -> str:
    tokens = f"{episode.sampled_tokens} tokens sampled, {episode.read_tokens} read between turns"
    end = f"ended by {finish_reason}" + (f": {episode.error}" if episode.error else "")
    return f"{end}; {episode.turns} turns, {tokens}"
