"""A taskset whose server of tools does not come up."""

import verifiers.v1 as vf

from stuck.tools import Tools


class Tasks(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self):
        return []

    @classmethod
    def toolsets(cls, config):
        return [Tools(vf.ToolsetConfig())]


__all__ = ["Tasks"]
