"""What a child runs, and what bounds it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildConfig:
    """What a child runs, what it sees, and its limits."""

    environment: str = ""
    """`module:Class`, or `trl:module:factory`; empty = tools alone."""
    tools: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    """Reward functions of a factory of TRL's, which look into its instances."""
    path: Path | None = None
    """Folder of the user's modules, last on the import path."""
    main: tuple[str, ...] = ()
    """Words of what is run in place of the child that loads modules; empty = that child. It gets `--fd` as well."""
    only_sandboxed: bool = False
    """Whether it is never started without bubblewrap."""
    mounts: tuple[tuple[Path, str], ...] = ()
    """Further folders, read-only: where each lies, and where it is seen."""
    links: tuple[tuple[str, str], ...] = ()
    """Links in its root: the target, and the link."""
    run_dir: Path | None = None
    """The run directory, hidden from the child even where a folder that it may read holds it."""
    folders: tuple[Path, ...] = ()
    """Further folders that it may read."""
    variables: tuple[str, ...] = ()
    """Further environment variables that it is given."""
    sandbox: bool = True
    """Whether it is started in bubblewrap where there is one."""
    network: bool = False
    memory_mib: int = 0
    """Address space; 0 = no limit."""
    cpu_s: float = 0.0
    """Seconds of a CPU for an episode; 0 = no limit."""
    max_result_chars: int = 4000
    """Longest result of a tool; what is longer is cut."""
    max_frame_bytes: int = 1 << 24
    start_s: float = 30.0
