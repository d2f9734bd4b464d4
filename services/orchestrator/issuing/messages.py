"""Builds the first message of a group, which the orchestrator puts on a stream. Pure apart from trace id and clock."""

import time
from dataclasses import replace

from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.settings import EvalTable, OrchestratorSettings
from headrace.wire import tracing
from headrace.wire.contracts import Header, Message, PromptGroup, Purpose, Sampling, eval_group_id, group_id
from headrace.wire.telemetry.logs import new_traceparent


def training_prompt(
    settings: OrchestratorSettings, row: PromptRow, *, group_index: int, attempt: int, min_version: int
) -> Message:
    """A training group: `batch.group_size` rollouts of one prompt, plus the baselines that the algorithm requires."""
    table = settings.sampling
    lengths = row.columns[table.forced_lengths_column] if table.forced_lengths_column else ()
    sampling = Sampling(
        temperature=table.temperature,
        top_k=table.top_k,
        top_p=table.top_p,
        min_p=table.min_p,
        max_tokens=table.max_tokens,
        stop_token_ids=settings.stop_token_ids,
        seed=settings.run.seed,
        forced_lengths=tuple(lengths),
        greedy_last=settings.greedy_last,
    )
    sampling = replace(sampling, keeps_ids=sampling.is_cut)
    group_size = settings.batch.group_size + settings.greedy_last
    name = group_id(settings.run.id, group_index)
    body = _prompt(row, sampling, group_size, min_version)
    return Message(header=_header(settings, Purpose.TRAIN, group_index, name, attempt), body=body)


def eval_prompt(
    settings: OrchestratorSettings, table: EvalTable, row: PromptRow, *, prompt: int, version: int
) -> Message:
    """An evaluation group: `k` rollouts of one prompt of the set, no credit, no journal."""
    sampling = Sampling(
        temperature=table.temperature,
        top_p=table.top_p,
        max_tokens=table.max_tokens or settings.sampling.max_tokens,
        stop_token_ids=settings.stop_token_ids,
        seed=settings.run.seed,
        greedy=table.greedy,
    )
    body = replace(_prompt(row, sampling, table.k, version), eval_version=version, task=table.task)
    name = eval_group_id(settings.run.id, version, prompt)
    return Message(header=_header(settings, Purpose.EVAL, prompt, name), body=body)


def _header(settings: OrchestratorSettings, purpose: Purpose, index: int, name: str, attempt: int = 0) -> Header:
    return Header(
        run_id=settings.run.id,
        purpose=purpose,
        group_index=index,
        group_id=name,
        attempt=attempt,
        traceparent=new_traceparent(sampled=tracing.samples()),
        issued_at=time.time(),
    )


def _prompt(row: PromptRow, sampling: Sampling, group_size: int, min_version: int) -> PromptGroup:
    return PromptGroup(
        sample_id=row.sample_id,
        token_ids=row.token_ids,
        group_size=group_size,
        sampling=sampling,
        min_version=min_version,
        columns=row.columns,
        text=row.text,
        environment=row.environment,
    )
