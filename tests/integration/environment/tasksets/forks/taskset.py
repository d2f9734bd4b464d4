import verifiers.v1 as vf


class ForksData(vf.TaskData):
    kind: str
    witness: str = ""


class ForksTask(vf.Task[ForksData]):
    @vf.reward
    async def one(self, trace: vf.Trace) -> float:
        return 1.0

    @vf.metric
    async def told(self, trace: vf.Trace) -> float:
        if self.data.kind == "broken metric":
            raise ValueError("there is no metric")
        return 1.0


class ForksTaskset(vf.Taskset[ForksTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        while True:
            yield ForksTask(ForksData(prompt="first", kind="linear"), self.config.task)
