import verifiers.v1 as vf

from calc.tools import Calc


class CalcData(vf.TaskData):
    answer: int


class CalcTask(vf.Task[CalcData]):
    @vf.reward
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.answer))

    @vf.reward(weight=0.5)
    async def used(self, trace: vf.Trace) -> float:
        return float(bool(trace.tool_messages))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class CalcTaskset(vf.Taskset[CalcTask, vf.TasksetConfig]):
    def load(self):
        return [CalcTask(CalcData(prompt=f"What is {n} + 34?", answer=n + 34), self.config.task) for n in range(12, 20)]

    @classmethod
    def toolsets(cls, config):
        return [Calc(vf.ToolsetConfig())]
