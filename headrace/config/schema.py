"""The whole `run.toml`: every service's tables side by side."""

from pydantic import Field

from headrace.data.settings import DataTable
from services.orchestrator.settings import EvalTable, OrchestratorTable
from services.reward.settings import RewardTable
from services.rollout.settings import RolloutTable
from services.trainer.settings import AlgorithmTable, SftTable, TrainerTable
from wire.settings import BatchTable, BrokerTable, ModelTable, RunTable, Table


class Ports(Table):
    """Fixed ports of a service on this machine; of several replicas the first one's, the others follow."""

    grpc_port: int = Field(0, ge=0, le=65535)
    """0 = a free one."""
    http_port: int = Field(0, ge=0, le=65535)
    """0 = a free one."""


class OrchestratorSection(Ports, OrchestratorTable):
    """`[orchestrator]`."""


class RewardSection(Ports, RewardTable):
    """`[reward]`."""


class RolloutSection(Ports, RolloutTable):
    """`[rollout]`."""


class TrainerSection(Ports, TrainerTable):
    """`[trainer]`."""


class SupervisorTable(Table):
    """`[supervisor]`: how `headrace train` looks after the processes on this machine."""

    ready_s: float = Field(900.0, gt=0)
    """A process that is not ready so long after its start ends the run, or is started again if it ever was."""
    liveness_s: float = Field(60.0, ge=0)
    """A process that was ready and then does not answer at all for so long is killed and started again; 0 = never."""


class RunFile(Table):
    """All tables of a `run.toml`; the one place where they are seen together."""

    run: RunTable = RunTable()
    model: ModelTable = ModelTable()
    data: DataTable
    batch: BatchTable = BatchTable()
    algorithm: AlgorithmTable = AlgorithmTable()
    rollout: RolloutSection = RolloutSection()
    reward: RewardSection = RewardSection()
    trainer: TrainerSection = TrainerSection()
    orchestrator: OrchestratorSection = OrchestratorSection()
    eval: EvalTable = EvalTable()
    broker: BrokerTable = BrokerTable()
    supervisor: SupervisorTable = SupervisorTable()
    sft: SftTable = SftTable()
