"""Bodies and answers of `/generate`, as pure functions."""

from typing import Any

import numpy as np
import pytest

from headrace.services.rollout.engines.protocol import GenerationError
from headrace.services.rollout.engines.sglang.requests import (
    RequestResult,
    ServerLimits,
    check_request,
    generate_body,
    join_parts,
    read_part,
    read_scores,
    score_body,
)
from headrace.wire.contracts import FinishReason, PolicyVersion
from headrace.wire.errors import ContractError
from tests.rollout_models import make_request

LIMITS = ServerLimits(vocab=100, context_length=32, prompt_length=30, max_requests=8)
SEEDED = ServerLimits(
    vocab=100, context_length=32, prompt_length=30, max_requests=8, deterministic=True, priorities=True
)
V1, V2 = PolicyVersion(incarnation=1, version=1), PolicyVersion(incarnation=1, version=2)


def answer(**changes: Any) -> dict[str, Any]:
    meta = {
        "finish_reason": {"type": "stop", "matched": 9},
        "prompt_tokens": 3,
        "cached_tokens": 2,
        "output_token_logprobs": [[-0.5, 7, None], [-1.5, 9, None]],
        "weight_versions": [{"version": "1.1", "start": 0, "end": 2}],
    }
    return {"output_ids": changes.pop("output_ids", [7, 9]), "meta_info": meta | changes}


def body(limits: ServerLimits = LIMITS, done: list[int] | None = None, **sampling: Any) -> dict[str, Any]:
    request = make_request([1, 2, 3], 2, seed=40, **sampling)
    return generate_body(request, 1, done or [], 10, limits, request_id="f" * 32, salt="")


def test_a_request_is_one_rollout_with_everything_said() -> None:
    found = body(temperature=0.7, stop_token_ids=(9,))
    assert found["input_ids"] == [1, 2, 3] and found["rid"] == "f" * 32 and found["return_logprob"]
    parameters = found["sampling_params"]
    assert "n" not in parameters and "sampling_seed" not in parameters and "priority" not in found
    assert (parameters["temperature"], parameters["top_p"], parameters["top_k"], parameters["min_p"]) == (0.7, 1, -1, 0)
    assert parameters["stop_token_ids"] == [9] and not parameters["ignore_eos"]
    assert parameters["max_new_tokens"] == 10


def test_only_a_deterministic_server_is_given_the_seed_of_each_rollout() -> None:
    assert body(SEEDED)["sampling_params"]["sampling_seed"] == 41
    assert body(SEEDED)["priority"] == 0


def test_without_stop_tokens_only_the_length_ends_a_rollout() -> None:
    assert body()["sampling_params"]["ignore_eos"]


def test_the_last_rollouts_of_a_group_with_baselines_are_greedy() -> None:
    request = make_request([1, 2, 3], 3, temperature=0.7, greedy_last=1)
    bodies = [generate_body(request, index, [], 10, LIMITS, request_id="r", salt="") for index in range(3)]
    assert [each["sampling_params"]["temperature"] for each in bodies] == [0.7, 0.7, 0]


def test_a_further_request_continues_after_the_tokens_sampled_so_far() -> None:
    found = body(done=[7, 8])
    assert found["input_ids"] == [1, 2, 3, 7, 8] and found["sampling_params"]["max_new_tokens"] == 8


def test_the_canary_is_a_prefill_ahead_of_all_others() -> None:
    found = score_body(np.array([4, 5], np.int32), SEEDED, request_id="r", salt="1.1/1")
    assert found["sampling_params"] == {"max_new_tokens": 0, "temperature": 1.0}
    assert found["logprob_start_len"] == 0 and found["extra_key"] == "1.1/1" and found["priority"] > 10


def test_completions_end_where_the_context_does() -> None:
    assert check_request(make_request([1] * 30, 1, max_tokens=10), LIMITS) == 2
    assert check_request(make_request([1] * 3, 1, max_tokens=10), LIMITS) == 10


@pytest.mark.parametrize(
    ("prompt", "sampling", "code"),
    [
        ([1] * 31, {}, "context_overflow"),
        ([100], {}, "bad_tokens"),
        ([1], {"stop_token_ids": (100,)}, "bad_tokens"),
        ([1], {"stop_token_ids": (-1,)}, "bad_tokens"),
        ([1], {"forced_lengths": (3,), "stop_token_ids": (9,)}, "bad_sampling"),
    ],
)
def test_requests_that_the_server_would_answer_wrongly_are_rejected(
    prompt: list[int], sampling: dict[str, Any], code: str
) -> None:
    with pytest.raises(ContractError) as refused:
        check_request(make_request(prompt, 1, **sampling), LIMITS)
    assert refused.value.code == code


def test_an_answer_becomes_a_part() -> None:
    part = read_part(answer())
    assert part.token_ids == [7, 9] and part.logprobs == [-0.5, -1.5]
    assert part.finish_reason is FinishReason.STOP and part.spans == ((2, V1),)
    assert (part.computed_tokens, part.cached_tokens) == (1, 2)
    assert read_part(answer(finish_reason={"type": "length", "length": 2})).finish_reason is FinishReason.LENGTH
    assert read_part(answer(finish_reason={"type": "abort", "message": ""})).finish_reason is None


def test_a_cut_draw_asks_for_its_mask_and_takes_the_logprobs_of_it() -> None:
    found = body(top_p=0.9, min_p=0.1, keeps_ids=True)
    assert "return_sampling_mask" not in body(top_p=0.9)  # of an evaluation
    parameters = found["sampling_params"]
    assert found["return_sampling_mask"] and (parameters["top_k"], parameters["min_p"]) == (512, 0.1)
    masked = {"output_token_sampling_mask": [[9, 7], [9]], "output_token_sampling_logprobs": [-0.25, 0.0]}
    part = read_part(answer(**masked), masked=True)
    assert part.logprobs == [-0.25, 0.0]
    kept = join_parts([part, part], {V1: "d"}, keeps_ids=True).kept
    assert kept is not None and (kept.counts.tolist(), kept.ids.tolist()) == ([2, 1, 2, 1], [7, 9, 9, 7, 9, 9])
    for wrong in (
        {},
        masked | {"output_token_sampling_mask": [[9, 7]]},
        # Beyond the server's limit: not the abort of a request that is continued.
        masked | {"finish_reason": {"type": "abort", "message": "exceeds", "status_code": 400}},
    ):
        with pytest.raises(ContractError):
            read_part(answer(**wrong), masked=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_ids": [7]},
        {"output_ids": [7, 8]},
        {"output_ids": ["x", 9]},
        {"output_token_logprobs": [[-0.5, 7, None]]},
        {"output_token_logprobs": None},
        {"finish_reason": None},
        {"finish_reason": {"type": "tired"}},
        {"output_ids": [], "output_token_logprobs": [], "weight_versions": []},
        {"weight_versions": []},
        {"weight_versions": [{"version": "1.1", "start": 0, "end": 1}]},
        {"weight_versions": [{"version": "1.1", "start": 0, "end": 1}, {"version": "1.2", "start": 0, "end": 2}]},
        {"weight_versions": [{"version": "default", "start": 0, "end": 2}]},
        {"weight_versions": [{"version": "1.1", "start": 0}]},
    ],
)
def test_an_answer_at_odds_with_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError) as refused:
        read_part(answer(**changes))
    assert refused.value.code == "bad_answer"


@pytest.mark.parametrize("value", [None, float("nan"), float("-inf"), "x"])
def test_a_logprob_that_is_not_a_number_is_a_generation_error(value: object) -> None:
    with pytest.raises(GenerationError):
        read_part(answer(output_token_logprobs=[[-0.5, 7, None], [value, 9, None]]))


def part(ids: list[int], *spans: tuple[int, PolicyVersion], reason: FinishReason | None = None) -> RequestResult:
    return RequestResult(
        token_ids=ids,
        logprobs=[-0.5] * len(ids),
        finish_reason=reason,
        spans=spans,
        computed_tokens=0,
        cached_tokens=4,
    )


def test_parts_are_joined_and_spans_of_one_version_too() -> None:
    parts = [part([1, 2, 3], (2, V1), (3, V2)), part([4], (1, V2)), part([5], (1, V2), reason=FinishReason.STOP)]
    found = join_parts(parts, {V1: "a", V2: "b"})
    assert found.token_ids.tolist() == [1, 2, 3, 4, 5] and found.finish_reason is FinishReason.STOP
    assert [(each.start, each.end, each.version, each.weights_digest) for each in found.spans] == [
        (0, 2, V1, "a"),
        (2, 5, V2, "b"),
    ]


def test_tokens_of_weights_that_were_never_installed_are_refused() -> None:
    with pytest.raises(ContractError, match=r"version 1\.2, which was not installed"):
        join_parts([part([1], (1, V2))], {V1: "a"})


def test_scores_are_read_for_the_tokens_that_were_sent() -> None:
    ids = np.array([4, 99, 5], np.int32)
    # The last token of a vocabulary of 100 comes back as 0.
    entries = [[None, 4, None], [-1.0, 0, None], [None, 5, None]]
    found = read_scores({"meta_info": {"input_token_logprobs": entries}}, ids, LIMITS)
    assert found[0] == -1.0 and np.isnan(found[1])
    for wrong in ([*entries, [-1.0, 5, None]], entries[:2], [[None, 4, None], [-1.0, 98, None], [-1.0, 5, None]], None):
        with pytest.raises(ContractError):
            read_scores({"meta_info": {"input_token_logprobs": wrong}}, ids, LIMITS)
