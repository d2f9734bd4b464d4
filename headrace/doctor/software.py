"""Checks of Python, packages, SGLang and the sandbox."""

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from headrace.doctor import versions
from headrace.doctor.findings import Finding, ask_child, fail, note, ok, warn
from headrace.doctor.versions import version as _version
from headrace.doctor.wants import CODE, Wants
from headrace.run.extras import check_extras
from headrace.supervisor.once import python
from headrace.wire.errors import ConfigError
from headrace.wire.host.bubblewrap import find_bubblewrap
from headrace.wire.host.compiler import compiler_lacks

_SHOWN = ("torch", "transformers", "grpcio", "protobuf", "pydantic", "numpy")
_SANDBOX_S = 60.0
_VENV_S = 60.0


def interpreter() -> Finding:
    """Names version and platform of Python; an older one than 3.11 does not come so far."""
    said = f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}"
    if platform.system() != "Linux":
        return warn("python", f"{said} on {platform.system()}", "only Linux is tested")
    return ok("python", said)


def packages() -> Finding:
    """Checks that all packages of the `demo` extra are installed, in a version that fits."""
    said = ", ".join(f"{name} {version}" for name in _SHOWN if (version := _version(name)))
    fix = "pip install 'headrace[demo]' (in a checkout: pip install -e '.[demo]' -c constraints.txt)"
    try:
        missing = list(_unmet("headrace", {"demo"}, set()))
    except metadata.PackageNotFoundError:
        return fail("packages", f"{said}; headrace itself is not installed, so what it needs is not known", fix)
    if missing:
        return fail("packages", f"{said}; missing or of another version: {', '.join(missing)}", fix)
    return ok("packages", said)


def extras(wants: Wants) -> Finding:
    """Checks the optional packages that the config needs."""
    if wants.resolved is None:
        return note("extras", "none named")
    try:
        check_extras(wants.resolved)
    except ConfigError as error:
        return fail("extras", str(error), "install it, or change the key")
    return ok("extras", "those of the config are there")


def compiler(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Checks what a GPU's kernels are compiled with at their first use."""
    compiled = wants.resolved is not None and wants.resolved.config.trainer.compile is True
    if not (wants.cuda or compiled):
        return note("compiler", "no kernel is compiled")
    lacking = compiler_lacks(environment)
    if lacking:
        said = f"there is no {' and no '.join(lacking)}: "
        fix = "install them: apt install gcc python3-dev, dnf install gcc python3-devel"
        if compiled:
            return fail("compiler", f"{said}trainer.compile needs both", fix)
        return warn("compiler", f"{said}a publication's checksums take many times as long", fix)
    faster = "; trainer.compile = true made steps 1.5 times as fast on an H200 (docs/benchmarks.md)"
    return ok("compiler", "kernels can be compiled" + ("" if compiled else faster))


def sglang(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Checks the SGLang that replicas launch, in its own virtual environment or in this one."""
    venv = wants.resolved.config.rollout.sglang.venv if wants.resolved else Path()
    if not wants.sglang and not venv.parts:
        version = _version("sglang")
        return (
            ok("sglang", version) if version else note("sglang", 'not installed; only rollout.engine = "sglang" asks')
        )
    where = f"{venv}/bin/python" if venv.parts else sys.executable
    fix = (
        "set rollout.sglang.venv to an environment with SGLang (`make gpu`; on a CPU deploy/sglang-cpu/install.sh VENV)"
    )
    look = (where, "-c", Path(versions.__file__).read_text(encoding="utf-8"))
    found = ask_child("the look at SGLang", look, environment, _VENV_S)
    if isinstance(found, str):
        return fail("sglang", f"{where}: {found}", fix)
    if not found["sglang"]:
        return fail("sglang", f"{where} has no sglang", fix)
    said = ", ".join(f"{name} {found[name]}" for name in versions.NAMES if found[name])
    return _one_nccl(wants, said, ours=versions.nccl(), theirs=found["nccl"])


def _one_nccl(wants: Wants, said: str, *, ours: str, theirs: str) -> Finding:
    """Checks that the trainer and the server have the same NCCL, so that weights can go over it."""
    if not wants.cuda or (wants.resolved and wants.resolved.config.rollout.sglang.device == "cpu"):
        return ok("sglang", said)
    if ours and ours == theirs:
        return ok("sglang", f"{said}, NCCL {theirs} like the trainer's")
    if not (ours or theirs):
        # Built from source, or from a distribution: their NCCL is known only at run time.
        return ok("sglang", f"{said}; no package reports its NCCL version, neither there nor here")
    words = f"{said}; NCCL {theirs or 'unknown'} there and {ours or 'unknown'} here: weights go over gloo, not NCCL"
    fix = f"`make gpu` installs both with one NCCL; or, beside this SGLang, {_same_torch(said)}"
    return warn("sglang", words, fix)


def _same_torch(said: str) -> str:
    torch = next((part for part in said.split(", ") if part.startswith("torch ")), "torch")
    return f"install {torch.replace(' ', '==').partition('+')[0]} for CUDA here"


def sandbox(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Starts bubblewrap as code rewards do, and checks the isolation from inside. Environments need less of it."""
    found = ask_child("the sandbox", python("headrace.doctor.probe", "sandbox"), environment, _SANDBOX_S)
    error = found if isinstance(found, str) else str(found["error"])
    if not error:
        return ok("sandbox", "bubblewrap isolates a program")
    said, _, fix = error.partition(". ")
    fix = fix or "see docs/sandbox.md"
    missing = not find_bubblewrap()
    needs = [what for what in wants.sandbox if missing or what == CODE]
    if needs:
        return fail("sandbox", f"{said} ({' and '.join(needs)} need it)", fix)
    # Math and most other rewards need no sandbox.
    return warn("sandbox", f"{said} (nothing of this config needs it)", fix)


def _unmet(name: str, extras: set[str], seen: set[str]) -> Iterator[str]:
    """Requirements of a package with these extras that this environment does not meet, its nested extras included."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or ():
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        if wanted.name == name:
            inner = wanted.extras - seen
            seen |= inner
            if inner:
                yield from _unmet(name, inner, seen)
            continue
        version = _version(wanted.name)
        if not version or not wanted.specifier.contains(re.sub(r"\+.*", "", version), prereleases=True):
            yield f"{wanted.name}{wanted.specifier}" + (f" (found {version})" if version else "")
