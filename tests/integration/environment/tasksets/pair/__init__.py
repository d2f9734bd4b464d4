"""A taskset that comes with an environment of two agents."""

import verifiers.v1 as vf


class PairConfig(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()
    judge: vf.AgentConfig = vf.AgentConfig()


class Pair(vf.Env[PairConfig]):
    async def run(self, task, agents):
        await agents.solver.run(task)


class Tasks(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self):
        return []


__all__ = ["Pair", "Tasks"]
