"""A user's function in the place of a part: found, checked on a made batch, and named in every error."""

import sys
import textwrap
from dataclasses import replace

import pytest
import torch

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.own import import_function
from headrace.services.trainer.algorithms.own_check import BatchShape, check_estimator, check_loss, made_signals
from headrace.services.trainer.algorithms.parts import Need
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.checks import group_problem
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.step.test_updates import how, run

SHAPE = BatchShape(groups=3, group_size=4, longest=9)
HEAD = "import torch\nfrom headrace.services.trainer.algorithms.algorithm import Estimate, PolicyLoss\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module and returns its name; each test has its own."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    name = f"mine_{tmp_path.name.replace('-', '_')}"

    def write(text):
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
        sys.modules.pop(name, None)
        return name

    yield write
    sys.modules.pop(name, None)


def table(**values):
    return AlgorithmTable.model_validate(values)


def check_advantage(target, shape=SHAPE, **values):
    used = table(advantage=target, **values)
    penalties = used.kl_in == "reward"
    check_estimator(target, build_algorithm(used).estimate, used.estimator.needs, shape, penalties=penalties)


def check_policy_loss(target):
    check_loss(target, build_algorithm(table(policy_loss=target)).policy_loss, SHAPE)


def test_functions_that_work_pass_and_train(module):
    name = module("""
        def estimate(signals):
            return Estimate(advantages=signals.rewards.repeat_interleave(signals.lengths))

        def loss(tokens):
            ratio = (tokens.logprobs - tokens.old).exp()
            return PolicyLoss(
                per_token=-ratio * tokens.advantages, clipped=ratio > 2, kl=(tokens.old - tokens.logprobs).detach()
            )
    """)
    check_advantage(f"{name}:estimate")
    check_advantage(f"{name}:estimate", whiten=True)
    check_policy_loss(f"{name}:loss")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return signals.rewards", "returned a Tensor, must return an Estimate"),
        ("return None", "returned None, must return an Estimate"),
        (
            "return Estimate(advantages=signals.rewards)",
            r"advantages has shape \[12\], must have \[\d+\], one",
        ),
        ("return Estimate(advantages=None)", "advantages is None, must be a Tensor"),
        ("return Estimate(advantages=torch.ones(int(signals.lengths.sum())).long())", "has dtype torch.int64"),
        (
            "return Estimate(advantages=torch.ones(int(signals.lengths.sum())) / signals.rewards.std().mul(0))",
            "advantages is inf at token 0, must be finite",
        ),
        (
            "each = torch.cat([(one - one.mean()) / one.std() for one in signals.rewards.split(signals.group_sizes)])\n"
            "    return Estimate(advantages=each.repeat_interleave(signals.lengths))",
            "advantages is nan at token 0, must be finite",
        ),
        ("return Estimate(advantages=torch.zeros(int(signals.lengths.sum())))", "all 0 on rewards that differ"),
        ("return signals.reward", r"mine_\w+.py:4: AttributeError: 'Signals' object has no attribute 'reward'"),
    ],
)
def test_an_estimator_that_cannot_train_is_refused_by_name(module, body, reason):
    name = module(f"def estimate(signals):\n    {body}\n")
    with pytest.raises(ConfigError, match=rf"^{name}:estimate.*{reason}"):
        check_advantage(f"{name}:estimate")


@pytest.mark.parametrize(
    ("per_token", "reason"),
    [
        ("-tokens.advantages * tokens.old", "no gradient flows from PolicyLoss.per_token"),
        ("-tokens.advantages * tokens.logprobs.detach()", "no gradient flows from PolicyLoss.per_token"),
        ("-tokens.advantages + 0 * tokens.logprobs", "is 0 at every token"),
        ("tokens.logprobs.mean()", r"per_token has shape \[\], must have \[\d+\], one a token"),
        ("tokens.logprobs / 0.0", r"per_token is (-?inf|nan) at token \d+, must be finite"),
        ("tokens.logprobs.sub(tokens.logprobs.detach()).sqrt()", r"gradient of .* is inf at token 0, must be finite"),
        ("tokens.logprobs.sum().expand(len(tokens.old)) / len(tokens.lengths[tokens.lengths > 0])", ""),
    ],
)
def test_a_loss_that_cannot_train_is_refused_by_name(module, per_token, reason):
    name = module(f"""
        def loss(tokens):
            return PolicyLoss(
                per_token={per_token}, clipped=tokens.old > 2, kl=(tokens.old - tokens.logprobs).detach()
            )
    """)
    if not reason:  # A micro-batch without a token gives no number at all: nothing to refuse.
        check_policy_loss(f"{name}:loss")
        return
    with pytest.raises(ConfigError, match=rf"^{name}:loss.*{reason}"):
        check_policy_loss(f"{name}:loss")


def test_a_loss_is_also_called_without_a_token(module):
    name = module("""
        def loss(tokens):
            scale = tokens.advantages.abs().max()
            return PolicyLoss(per_token=tokens.logprobs / scale, clipped=tokens.old > 2, kl=tokens.old)
    """)
    with pytest.raises(ConfigError, match=r"mine_\w+.py:5: .*max"):
        check_policy_loss(f"{name}:loss")


def test_a_baseline_of_the_group_with_a_group_of_one_is_refused(module):
    name = module("""
        def estimate(signals):
            parts = signals.rewards.split(signals.group_sizes)
            each = torch.cat([one - one.mean() for one in parts])
            return Estimate(advantages=each.repeat_interleave(signals.lengths))
    """)
    check_advantage(f"{name}:estimate")
    with pytest.raises(ConfigError, match="group_size is 1"):
        check_advantage(f"{name}:estimate", BatchShape(groups=4, group_size=1, longest=9))
    assert group_problem(table(advantage=f"{name}:estimate", needs=["group"]), 1) is not None


def test_a_batch_of_one_group_is_also_one_of_equal_rewards(module):
    name = module("""
        def estimate(signals):
            each = (signals.rewards - signals.rewards.mean()) / signals.rewards.std()
            return Estimate(advantages=each.repeat_interleave(signals.lengths))
    """)
    with pytest.raises(ConfigError, match="advantages is nan at token 0"):
        check_advantage(f"{name}:estimate", BatchShape(groups=1, group_size=4, longest=9))


def test_an_own_advantage_gets_exactly_the_inputs_that_it_needs(module):
    name = module("""
        def estimate(signals):
            found = (signals.values, signals.reference, signals.baselines, signals.old, signals.penalties)
            assert all(one is not None for one in found)
            return Estimate(advantages=signals.values, returns=signals.values)
    """)
    needs = ["critic", "reference", "greedy", "old_logprobs", "token_rewards"]
    used = table(advantage=f"{name}:estimate", needs=needs, anchor="proximal", kl_in="reward", kl_coef=0.1)
    assert used.needs_critic and used.needs_reference and used.greedy_last == 1
    assert used.estimator.needs == Need.CRITIC | Need.REFERENCE | Need.GREEDY | Need.OLD_LOGPROBS
    check_advantage(f"{name}:estimate", needs=needs, anchor="proximal", kl_in="reward", kl_coef=0.1)
    with pytest.raises(ConfigError, match="AssertionError"):
        check_advantage(f"{name}:estimate")


def test_an_own_advantage_reads_the_columns_of_its_prompts_row(module):
    name = module("""
        def estimate(signals):
            hard = torch.tensor([row.get("difficulty", 1.0) for row in signals.columns], dtype=torch.float64)
            of_rollouts = signals.rewards * hard.repeat_interleave(torch.tensor(signals.group_sizes))
            return Estimate(advantages=of_rollouts.repeat_interleave(signals.lengths))
    """)
    check_advantage(f"{name}:estimate")
    groups = [scored_group(index, rewards=[1, 0, 0, 1]) for index in range(2)]
    prompts = [replace(one.group.prompt, columns={"difficulty": 2.0 + n}) for n, one in enumerate(groups)]
    rows = [replace(one, group=replace(one.group, prompt=own)) for one, own in zip(groups, prompts, strict=True)]
    _, outcome = run(how(advantage=f"{name}:estimate"), groups=rows)
    assert outcome.advantages == pytest.approx((2, 0, 0, 2, 3, 0, 0, 3))


def test_an_own_advantage_with_a_critic_must_return_returns(module):
    name = module("def estimate(signals):\n    return Estimate(advantages=signals.values)\n")
    with pytest.raises(ConfigError, match="returns is None, must be a Tensor"):
        check_advantage(f"{name}:estimate", needs=["critic"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"needs": ["group"]}, "needs is for an advantage of your own: 'group' declares what it needs"),
        ({"path": "code"}, "path has no effect"),
        ({"advantage": "mine:f", "kl_in": "reward", "kl_coef": 0.1}, "needs = ..token_rewards"),
        ({"advantage": "mine:f", "needs": ["old_logprobs"]}, "set anchor = 'proximal'"),
        ({"advantage": "mine:f", "needs": ["grup"]}, "'group', 'critic'"),
    ],
)
def test_tables_that_cannot_work_are_refused(values, reason):
    with pytest.raises(ValueError, match=reason):
        table(**values)


def test_the_made_batch_has_the_shapes_that_break_functions():
    signals = made_signals(Need.GROUP, SHAPE, penalties=False)
    assert signals.group_sizes == (4, 4, 4) and len(signals.rewards) == 12
    assert int(signals.lengths.max()) == 9 and int(signals.lengths[-1]) == 0
    assert len(set(signals.lengths.tolist())) > 3
    assert signals.rewards[:4].tolist() == [1.0] * 4 and len(set(signals.rewards[4:].tolist())) == 8
    large = made_signals(Need.NOTHING, BatchShape(groups=64, group_size=16, longest=1 << 20), penalties=False)
    assert int(large.lengths.sum()) <= 1 << 20
    alone = made_signals(Need.NOTHING, BatchShape(groups=1, group_size=1, longest=5), penalties=False)
    assert alone.lengths.tolist() == [1] and alone.rewards.dtype == torch.float64


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        (
            "",
            "no_such_module:f",
            "No module named 'no_such_module'; put the folder .* algorithm.path",
        ),
        ("", "{name}:f", "f does not exist in .*mine_"),
        ("f = 3\n", "{name}:f", "f is not a function in .*mine_"),
        ("import no_such_part\n", "{name}:f", r"mine_\w+.py:3: No module named 'no_such_part'"),
        ("def f(:\n", "{name}:f", r"mine_\w+.py:3: SyntaxError"),
        ("\n1 / 0\n", "{name}:f", r"mine_\w+.py:4: ZeroDivisionError"),
        ("", "{name}:", "names no function; write module:function"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused_with_file_and_line(module, text, target, reason):
    name = module(text)
    with pytest.raises(ConfigError, match=reason):
        import_function(target.format(name=name))
