"""The files that `init` writes, for `str.format`."""

CONFIG = """\
# {rows} rows with {names}. An option changes a value for one run: --{table}.learning-rate 1e-5
# Every key: docs/config.md

[run]
id = {id}
{run}

{model}

[data]
path = {path}
{preset}eval_size = {eval_size:<18}# rows held out to evaluate the model on
overlong = "drop"             # rows that do not fit into the model's context
{columns}"""
MADE = """\
# A tiny model of random weights, to see the run work. For a real one put this in its place, and `device = "cuda"` into
# [run] where there is a GPU:
# [model]
# path = "Qwen/Qwen2.5-0.5B-Instruct"      # or a folder
[model.make]
kind = "text"
text = {path}"""
RL = """
[batch]
groups = {groups:<21}# prompts a step
group_size = 4                # answers to each, which are compared with one another

[rollout.sampling]
max_tokens = {tokens:<17}# longest rollout
{environment}
[[reward.scorers]]
name = {scorer}

[trainer]
learning_rate = {rate}
"""
STAGE = """
[{table}]
epochs = 1
batch_size = 8
learning_rate = {rate}
"""
ENVIRONMENT = """
[environment]
name = "agent:Agent"          # in agent/agent.py: change its tools and its reward first
path = "agent"
max_turns = 4
"""
OWN = """
[reward]
path = "."
"""
SCORERS = {
    "math": '"math"                 # docs/rewards.md lists the others',
    "reward": '"reward:score"         # in reward.py: change it first',
    "tools": '"environment"',
}
REWARD = '''\
from difflib import SequenceMatcher


def score(completion, answer="", **columns):
    """The reward of an answer, by the columns of its row: any number within 1000 of 0."""
    return SequenceMatcher(None, completion.strip(), str(answer)).ratio()
'''
AGENT = '''\
from difflib import SequenceMatcher


class Agent:
    """Asks what a row asks, and judges the last answer."""

    tools = ("add",)

    def reset(self, task, rollout_id, attempt):
        self.answer = str(task.get({answer}, ""))
        return task[{prompt}]

    def add(self, numbers: str) -> str:
        """Adds numbers.

        Args:
            numbers: as in 17+25.
        """
        return str(sum(int(number) for number in numbers.split("+")))

    def reward(self, messages):
        return SequenceMatcher(None, messages[-1]["content"].strip(), self.answer).ratio()
'''
