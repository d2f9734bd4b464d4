"""Plays one episode for people: with the replicas of a live run, or with one replica at an address. Trains nothing."""

import asyncio
import secrets

import numpy as np

from headrace.services.environment.app import check_digest
from headrace.services.environment.cast import cast_of, no_notes
from headrace.services.environment.player.replicas import ReplicaDirectory, follow_replicas
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.settings import PlayOnceSettings
from headrace.wire.contracts import EnvironmentTask, Header, PromptGroup, Purpose, Rollout, Sampling
from headrace.wire.rendering.tokenizers import load_tokenizer
from headrace.wire.rundir.episode_column import Decode, episode_text, episode_view
from headrace.wire.v1 import message_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb

_HERE = "here"


async def play_once(settings: PlayOnceSettings) -> dict[str, object]:
    """Returns `rollout_id`, `finish_reason`, `text`, `token_ids`, `logprobs` (null = read) and `episode`.

    Raises ConfigError for an environment that has changed since the run began or cannot be loaded, and for a renderer
    that does not fit the model.
    """
    check_digest(settings)
    tokenizer = load_tokenizer(settings.model.path)
    directory = ReplicaDirectory()
    turns = TurnClient(directory)
    cast = cast_of(settings, tokenizer, turns, 1, no_notes)
    following = None
    if settings.play.address:
        directory.update([_place(settings)])
    else:
        following = asyncio.create_task(
            follow_replicas(settings.orchestrator_address, settings.run.id, directory), name="follow the replicas"
        )
    try:
        async with cast.pool.child() as child:
            cast.renderer.check(child.tools)
            rollout = await cast.player.play(child, _prompt(settings), _header(settings), 0)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await cast.pool.close()
        await turns.close()
    return _record_of(rollout, lambda ids: [tokenizer.decode([one]) for one in ids])


def _place(settings: PlayOnceSettings) -> pb.ReplicaPlace:
    version = message_pb2.PolicyVersion(incarnation=0, version=settings.play.version)
    return pb.ReplicaPlace(replica_id=_HERE, address=settings.play.address, version=version, free_rows=1, takes=True)


def _header(settings: PlayOnceSettings) -> Header:
    # Seeds of turns are drawn from it: with the same seed the same episode is played again.
    own = secrets.token_hex(4) if settings.play.seed is None else str(settings.play.seed)
    name = f"{settings.run.id}/look-{own}"
    return Header(run_id=settings.run.id, purpose=Purpose.EVAL, group_index=0, group_id=name)


def _prompt(settings: PlayOnceSettings) -> PromptGroup:
    play = settings.play
    task = EnvironmentTask(
        name=settings.environment.label, digest=settings.environment_digest, task_json=play.task_json
    )
    sampling = Sampling(
        temperature=play.temperature,
        top_k=play.top_k,
        top_p=play.top_p,
        max_tokens=play.max_tokens,
        stop_token_ids=play.stop_token_ids,
        seed=secrets.randbits(63) if play.seed is None else play.seed,
        greedy=play.greedy,
    )
    return PromptGroup(
        sample_id="look", token_ids=np.empty(0, np.int32), group_size=1, sampling=sampling, environment=task
    )


def _record_of(rollout: Rollout, decode: Decode) -> dict[str, object]:
    assert rollout.episode is not None
    mask = rollout.trained_mask.tolist()
    view = episode_view(episode_text(rollout.episode), mask, decode)
    pairs = zip(rollout.logprobs.tolist(), mask, strict=True)
    return {
        "rollout_id": rollout.rollout_id,
        "finish_reason": rollout.finish_reason.value,
        "text": rollout.text,
        "token_ids": rollout.token_ids.tolist(),
        "logprobs": [logprob if is_sampled else None for logprob, is_sampled in pairs],
        "episode": None if view is None else view.model_dump(),
    }
