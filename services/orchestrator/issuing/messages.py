"""Builds the first message of a group, which the orchestrator puts on a stream. Pure apart from trace id and clock."""

import time

from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.settings import EvalTable, OrchestratorSettings
from headrace.wire import tracing
from headrace.wire.contracts import Header, Message, PromptGroup, Purpose, Sampling, eval_group_id, group_id
from headrace.wire.telemetry.logs import new_traceparent


def training_prompt(
    settings: OrchestratorSettings, row: PromptRow, *, group_index: int, attempt: int, min_version: int
) -> Message:
    """A training group: `batch.group_size` rollouts of one prompt, plus the baselines that the algorithm requires."""
    run = settings.run
    sampling = settings.sampling
    lengths = row.columns[sampling.forced_lengths_column] if sampling.forced_lengths_column else ()
    return Message(
        header=Header(
            run_id=run.id,
            purpose=Purpose.TRAIN,
            group_index=group_index,
            group_id=group_id(run.id, group_index),
            attempt=attempt,
            traceparent=new_traceparent(sampled=tracing.samples()),
            issued_at=time.time(),
        ),
        body=PromptGroup(
            sample_id=row.sample_id,
            token_ids=row.token_ids,
            group_size=settings.batch.group_size + settings.greedy_last,
            sampling=Sampling(
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                stop_token_ids=settings.stop_token_ids,
                seed=run.seed,
                forced_lengths=tuple(lengths),
                greedy_last=settings.greedy_last,
            ),
            min_version=min_version,
            columns=row.columns,
            text=row.text,
            environment=row.environment,
        ),
    )


def eval_prompt(
    settings: OrchestratorSettings, table: EvalTable, row: PromptRow, *, prompt: int, version: int
) -> Message:
    """An evaluation group: `k` rollouts of one prompt of the set, no credit, no journal."""
    run = settings.run
    return Message(
        header=Header(
            run_id=run.id,
            purpose=Purpose.EVAL,
            group_index=prompt,
            group_id=eval_group_id(run.id, version, prompt),
            traceparent=new_traceparent(sampled=tracing.samples()),
            issued_at=time.time(),
        ),
        body=PromptGroup(
            sample_id=row.sample_id,
            token_ids=row.token_ids,
            group_size=table.k,
            sampling=Sampling(
                temperature=table.temperature,
                top_p=table.top_p,
                max_tokens=table.max_tokens or settings.sampling.max_tokens,
                stop_token_ids=settings.stop_token_ids,
                seed=run.seed,
                greedy=table.greedy,
            ),
            min_version=version,
            columns=row.columns,
            eval_version=version,
            text=row.text,
            environment=row.environment,
            task=table.task,
        ),
    )
