"""Precedence, paths and the messages of wrong settings."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.lines import key_lines
from headrace.config.resolve import resolve
from headrace.config.toml import to_toml
from headrace.wire.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def message(folder: Path, text: str, *arguments: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(written(folder, text), arguments=arguments, environment=environment)
    return str(caught.value).replace(str(folder) + "/", "")


GOOD = '[data]\npath = "p.jsonl"\n'


def test_arguments_win_over_the_environment_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD + "[run]\nseed = 1\nmax_steps = 1\nthreads = 1\n")
    found = resolve(
        file,
        arguments=["--run.max-steps=3"],
        environment={"HEADRACE_RUN__MAX_STEPS": "2", "HEADRACE_RUN__THREADS": "2", "HEADRACE_OTHER": "x"},
    ).config.run
    assert (found.max_steps, found.threads, found.seed, found.max_staleness) == (3, 2, 1, 1)


def test_an_error_of_a_table_is_placed_at_the_argument_that_it_names(tmp_path: Path) -> None:
    given = ["--algorithm.name", "remax", "--algorithm.kl-coef", "0.1", "--algorithm.kl-in", "reward"]
    assert message(tmp_path, GOOD, *given).startswith("--algorithm.kl-in: [algorithm] remax: kl_in = 'reward' has no")


@pytest.mark.parametrize(
    ("arguments", "get", "value"),
    [
        (["--trainer.learning-rate", "1e-6"], lambda c: c.trainer.learning_rate, 1e-6),
        (["--trainer.betas", "[0.8, 0.9]"], lambda c: c.trainer.betas, (0.8, 0.9)),
        (["--rollout.deterministic"], lambda c: c.rollout.deterministic, True),
        (["--rollout.deterministic", "--run.seed", "4"], lambda c: c.run.seed, 4),
        (["--run.id", "5"], lambda c: c.run.id, "5"),
        (["--data.system", "[be kind"], lambda c: c.data.system, None),
        (["--data.system", "true"], lambda c: c.data.system, "true"),
        (["--data.columns.prompt", "question"], lambda c: c.data.columns, {"prompt": "question"}),
        (["--data.columns", '{"prompt": "q"}'], lambda c: c.data.columns, {"prompt": "q"}),
        (["--rollout.sampling.max-tokens", "9"], lambda c: c.rollout.sampling.max_tokens, 9),
        (
            ["--reward.scorers", '[{"name": "numeric", "weight": 2}]'],
            lambda c: [(s.name, s.weight) for s in c.reward.scorers],
            [("numeric", 2.0)],
        ),
    ],
)
def test_an_argument_is_parsed_as_the_type_of_its_key(tmp_path: Path, arguments, get, value) -> None:
    file = written(tmp_path, GOOD)
    if value is None:
        with pytest.raises(ConfigError, match="not valid JSON"):
            resolve(file, arguments=arguments)
    else:
        assert get(resolve(file, arguments=arguments).config) == value


def test_relative_paths_are_relative_to_where_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    file = written(tmp_path, GOOD + '[model]\npath = "m"\n[reward]\npath = "mine"\n')
    config = resolve(file).config
    assert config.model.path == tmp_path / "m"
    assert config.data.path == str(tmp_path / "p.jsonl")
    assert config.reward.path == tmp_path / "mine"
    config = resolve(file, arguments=["--model.path", "m", "--data.path", "q.parquet"]).config
    assert (config.model.path, config.data.path) == (elsewhere / "m", str(elsewhere / "q.parquet"))


def test_files_of_scorers_are_relative_to_where_they_were_given_in_tasks_and_ensembles_too(tmp_path: Path) -> None:
    text = """
[reward.tasks."my task"]
[[reward.tasks."my task".scorers]]
name = "json_schema"
options = { schema_file = "schemas/a.json" }
[[reward.scorers]]
name = "ensemble"
label = "judges"
combination = "median"
[[reward.scorers.members]]
name = "judge"
options = { url = "https://judge.example", api_key_file = "keys/judge" }
"""
    reward = resolve(written(tmp_path, GOOD + text)).config.reward
    assert reward.tasks["my task"].scorers[0].options["schema_file"] == str(tmp_path / "schemas" / "a.json")
    judge = reward.scorers[0].members[0].options
    assert judge == {"url": "https://judge.example", "api_key_file": str(tmp_path / "keys" / "judge")}


def test_an_unknown_key_is_refused_with_line_and_nearest_key(tmp_path: Path) -> None:
    text = GOOD + "\n[trainer]\nlearnin_rate = 1e-6\n"
    assert message(tmp_path, text) == 'run.toml:5: [trainer] unknown key "learnin_rate"; did you mean "learning_rate"?'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[run]\nmax_steps = "5"\n', 'run.toml:4: [run] max_steps = "5": input should be a valid integer: write it w'),
        (
            "[run]\nlearning_rate = 1\n",
            'run.toml:4: [run] unknown key "learning_rate"; a key of that name is in [critic], [discriminator]',
        ),
        (
            "[run]\nmax_token = 1\n",
            'run.toml:4: [run] unknown key "max_token"; did you mean [rollout.sampling] max_tokens',
        ),
        ("[training]\n", "run.toml:3: unknown table [training]; did you mean [tracing] or [trainer]?"),
        ("[run]\nseed = true\n", "run.toml:4: [run] seed = true: input should be a valid integer"),
        ("[run]\nmax_steps = -1\n", "run.toml:4: [run] max_steps = -1: input should be greater than or equal to 0"),
        ("[run]\nid = 'A b'\n", "run.toml:3: [run] run id 'A b' must be 1 to 63 of"),
        ("run = 3\n", "run.toml:"),
        (
            "[[reward.scorers]]\nname = 'format'\n[[reward.scorers]]\nname = 'x'\nwieght = 1\n",
            'run.toml:7: [reward.scorers] unknown key "wieght"; did you mean "weight"?',
        ),
        (
            "[run]\nmax_steps = 2024-01-01\n",
            "run.toml:4: [run] max_steps: 2024-01-01 is a date or time",
        ),
        (f"[run]\nmax_steps = {'1' * 5000}\n", "run.toml:4: a number has too many digits: no setting needs them"),
        (f"[run]\nmax_steps = {'[' * 5000}{']' * 5000}\n", "run.toml: its tables or lists are nested too deeply"),
        ('[model]\npath = "~nouser/m"\n', "run.toml:4: [model] path: '~nouser/m' is no path: no user of this machine"),
        ('[model]\npath = "a\\u0000b"\n', "run.toml:4: [model] path: 'a\\x00b' is no path: it holds a NUL character"),
        (
            "[rollout.sampling]\n\ntop_p = 2.0\n",
            "run.toml:5: [rollout.sampling] top_p = 2.0: input should be less than",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_line_and_value(tmp_path: Path, text: str, told: str) -> None:
    whole = text + GOOD if text.startswith("run") else GOOD + text
    assert message(tmp_path, whole).startswith(told)


def test_a_missing_key_table_or_file_is_named(tmp_path: Path) -> None:
    assert message(tmp_path, "[data]\nlimit = 3\n") == 'run.toml:1: [data] lacks the key "path"'
    assert message(tmp_path, "[run]\n") == "run.toml: there is no table [data]"
    assert message(tmp_path, "[run]\nseed = = 3\n").startswith("run.toml:2: not valid TOML")
    with pytest.raises(ConfigError, match="there is no such file"):
        resolve(tmp_path / "absent.toml")


def test_a_resolved_config_resolves_to_itself(tmp_path: Path) -> None:
    config = resolve(
        written(tmp_path, GOOD + "[reward]\nscorers = [{name = 'format', options = {pattern = 'a\"b'}}]\n")
    ).config
    text = to_toml(config.model_dump(mode="json", serialize_as_any=True))
    assert resolve(written(tmp_path, text)).config == config


leaves = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(leaves.filter(lambda v: v is not None), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
tables = st.dictionaries(
    st.text(max_size=5), values | st.dictionaries(st.text(max_size=5), values, max_size=3), max_size=4
)


@given(tables)
def test_written_toml_reads_back_unchanged(table) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_lines_are_found_past_strings_comments_and_arrays() -> None:
    text = '''top = 1 # [no]
[a]  # table
x = """
y = 2
[b]
"""
z = [ # [c]
  "]", 1,
  {k = 1},
]
"quoted key".inner = 1
[[list]]
n = 1
[[list]]
n = 2
'''
    lines = key_lines(text)
    assert tomllib.loads(text)["list"][1] == {"n": 2}
    assert lines == {
        ("top",): 1,
        ("a",): 2,
        ("a", "x"): 3,
        ("a", "z"): 7,
        ("a", "quoted key"): 11,
        ("a", "quoted key", "inner"): 11,
        ("list", 0): 12,
        ("list", 0, "n"): 13,
        ("list", 1): 14,
        ("list", 1, "n"): 15,
    }


def test_a_taskset_provides_both_the_rows_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "sets" / "sums").mkdir(parents=True)
    text = '[[reward.scorers]]\nname = "environment"\n[data]\nenvironment = "{}"\n'
    found = resolve(written(tmp_path, text.format("sets/sums"))).config
    assert (found.data.path, found.data.environment) == ("", "sums")
    assert (found.environment.name, found.environment.path) == ("verifiers:sums", tmp_path / "sets")
    again = resolve(written(tmp_path, to_toml(found.model_dump(mode="json", exclude_defaults=True)))).config
    assert again.environment == found.environment and again.data == found.data
    installed = resolve(written(tmp_path, text.format("gsm8k-v1"))).config
    assert (installed.environment.name, installed.environment.path) == ("verifiers:gsm8k-v1", None)
    assert "environment brings its own rows: leave path out" in message(
        tmp_path, text.format("sums") + 'path = "p.jsonl"\n'
    )
    assert 'lacks the key "path"' in message(tmp_path, "[data]\nlimit = 1\n")
    other = message(tmp_path, text.format("sums"), "--environment.name", "verifiers:other")
    assert 'data.environment = "sums", but environment.name = "verifiers:other" is what is played' in other
    assert "a taskset brings its own tools" in message(tmp_path, text.format("sums"), "--environment.tools", '["a:b"]')
    wrong = message(tmp_path, GOOD, "--environment.name", "game:Sums", "--environment.harness", "bash")
    assert 'options and harness are for name = "verifiers:taskset"' in wrong
