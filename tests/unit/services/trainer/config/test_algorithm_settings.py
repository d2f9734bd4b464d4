import typing

import pytest
from pydantic import ValidationError

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.names import KL_ESTIMATORS
from headrace.services.trainer.algorithms.parts import ADVANTAGES, POLICY_LOSSES, CorrectionTable
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.checks import critic_problem
from headrace.services.trainer.config.keys import CriticTable

NAMES = [
    "ppo",
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gspo_token",
    "sapo",
    "cispo",
    "vapo",
    "rloo",
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "remax",
    "opo",
    "dppo",
    "ipo_mask",
    "gmpo",
    "gdpo",
]


def table(**values):
    return AlgorithmTable.model_validate(values)


def literals(model, key):
    return set(typing.get_args(model.model_fields[key].annotation))


def test_the_recipes_include_the_established_algorithms():
    assert set(NAMES) <= set(recipes())


@pytest.mark.parametrize("name", recipes())
def test_a_recipes_settings_are_the_defaults_of_its_name_and_each_can_be_overridden(name):
    given = dict(recipes()[name].settings)
    found = table(name=name)
    preset = given.pop("correction", {}).get("preset", "none")
    assert {key: getattr(found, key) for key in given} == given
    assert found.correction.preset == preset
    assert table(**found.model_dump()) == found
    build_algorithm(found)
    assert table(name=name, aggregation="token-sum").aggregation == "token-sum"
    assert found.model_dump()["name"] == name


def test_an_unknown_algorithm_part_is_rejected_with_the_known_ones():
    for key, declared in (("advantage", ADVANTAGES), ("policy_loss", POLICY_LOSSES)):
        with pytest.raises(ValidationError, match=f"{key} 'grup' is not one of ({'|'.join(declared)}), "):
            table(**{key: "grup"})
    assert literals(AlgorithmTable, "kl_estimator") == set(KL_ESTIMATORS)


def test_overriding_a_correction_key_keeps_the_recipes_preset():
    found = table(name="reinforce", correction={"cap": 3.0}).correction
    assert (found.preset, found.weight, found.cap) == ("token_tis", "token", 3.0)


def test_a_preset_fills_its_keys_and_each_can_be_overridden():
    ice = CorrectionTable.model_validate({"preset": "icepop", "cap": 3.0})
    assert (ice.weight, ice.outside, ice.floor, ice.cap) == ("token", "mask", 0.5, 3.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"name": "gspo", "clip_low": 0.2, "clip_high": 0.28}, "would never clip"),
        ({"name": "gspo_token", "clip_high": 0.2}, "0.0003 and 0.0004"),
        ({"correction": {"preset": "token_tis"}}, "correct the same gap twice"),
        ({"name": "remax", "kl_in": "reward", "kl_coef": 0.1}, "set kl_in = 'loss', or advantage to one of group, "),
        ({"policy_loss": "gspo"}, "would never clip"),
        (
            {"kl_in": "reward", "kl_coef": 0.1, "name": "reinforce_pp", "kl_unbiased": True},
            "no gradient to be unbiased",
        ),
        ({"kl_coef": 0.1, "kl_estimator": "k1"}, "no gradient in expectation"),
        ({"dual_clip": 0.5}, "above 1"),
        ({"ratio_cap": 1.1}, "above 1 \\+ clip_high"),
        ({"anchor": "proximal", "correction": {"preset": "icepop", "cap": 0.3}}, "floor = 0.5 is above cap"),
        ({"correction": {"reject": "k3", "reject_low": 3.0, "reject_high": 1.0}}, "every rollout would be"),
        ({"name": "dr_grpo", "batch_std": True}, "set normalize_std = true"),
        ({"reference_mix": 0.1, "kl_coef": 0.1}, "set that, 1 for every step"),
        ({"reference_reset_every": 3}, "needs a reference"),
        ({"advantage": "online_dpo", "policy_loss": "policy_gradient"}, "needs the policy's own logprobs"),
        ({"name": "online_dpo", "whiten": True}, "not whitened"),
        ({"name": "reinforce", "bootstrap_truncated": True}, "needs a critic's value"),
        ({"advantage": "monte_carlo", "bootstrap_truncated": True}, "needs a critic's value"),
        ({"kl_target": 0.1}, "kl_coef, which is 0"),
        ({"lam_alpha": 0.05}, "lam_alpha is of advantage = 'gae'"),
        ({"bootstrap_truncated": True}, "needs a critic's value"),
        ({"ptx_coef": 0.1}, "needs ptx_data"),
        ({"name": "online_dpo", "policy_loss": "ppo_clip"}, "only under policy_loss"),
        ({"reference": "adapters_off", "reference_reset_every": 5}, "needs reference = 'frozen'"),
        ({"entropy_coef": 0.5, "entropy_target": 1.0}, "above entropy_max"),
        ({"name": "grppo"}, "not one of grpo, ppo"),
        ({"correction": {"preset": "tis"}}, "not one of mis, token_tis"),
        ({"clip_lo": 0.1}, "clip_lo"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(values, reason):
    with pytest.raises(ValidationError, match=reason):
        table(**values)


def test_algorithms_that_need_a_critic_reject_a_disabled_one():
    assert "needs a critic" in (critic_problem(table(name="ppo"), CriticTable(enabled=False)) or "")
    assert critic_problem(table(name="ppo"), CriticTable()) is None
    assert critic_problem(table(name="grpo"), CriticTable(enabled=False)) is None
    assert "quantiles" in (critic_problem(table(name="ppo"), CriticTable(spread_weight=1.0)) or "")
