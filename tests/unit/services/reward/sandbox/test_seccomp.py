import struct

import pytest

from headrace.services.reward.sandbox.inside.seccomp import denied, make_filter

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, number: int, architecture: int, argument: int = 0) -> int:
    """What the kernel would do: runs the filter over one call, as seccomp(2) and classic BPF have it."""
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    data = struct.pack("<IIQ6Q", number, architecture, 0, argument, 0, 0, 0, 0, 0)
    at, held = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if holds else no


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", X86), ("aarch64", ARM)])
def test_each_denied_call_fails_and_its_neighbours_pass(machine, architecture):
    program, numbers = make_filter(machine), denied(machine)
    special = {"x86_64": {56, 157, 435}, "aarch64": {220, 167, 435}}[machine]
    for name, number in numbers.items():
        assert verdict(program, number, architecture) == EPERM, name
    passing = set(range(500)) - set(numbers.values()) - special
    assert all(verdict(program, number, architecture) == ALLOW for number in passing)


@pytest.mark.parametrize(("machine", "architecture", "clone"), [("x86_64", X86, 56), ("aarch64", ARM, 220)])
def test_threads_may_be_started_and_processes_may_not(machine, architecture, clone):
    program = make_filter(machine)
    thread, fork, namespace = 0x003D0F00, 0x01200011, 0x10000011
    assert verdict(program, clone, architecture, thread) == ALLOW
    assert verdict(program, clone, architecture, fork) == EPERM
    assert verdict(program, clone, architecture, namespace) == EPERM
    assert verdict(program, 435, architecture) == ENOSYS


@pytest.mark.parametrize(("machine", "architecture", "prctl"), [("x86_64", X86, 157), ("aarch64", ARM, 167)])
def test_a_program_cannot_re_enable_core_dumps(machine, architecture, prctl):
    program = make_filter(machine)
    set_dumpable, set_name, high_bits = 4, 15, 1 << 32
    assert verdict(program, prctl, architecture, set_dumpable) == EPERM
    assert verdict(program, prctl, architecture, high_bits | set_dumpable) == EPERM
    assert verdict(program, prctl, architecture, set_name) == ALLOW


def test_system_calls_used_in_past_escapes_are_denied():
    names = {
        "io_setup",
        "statmount",
        "listmount",
        "open_tree_attr",
        "setpriority",
        "sched_setattr",
        "sched_setaffinity",
    }
    assert names <= denied("x86_64").keys() & denied("aarch64").keys()


def test_calls_of_another_architecture_kill():
    assert verdict(make_filter("x86_64"), 1, 0x40000003) == KILL
    assert verdict(make_filter("x86_64"), 0x40000000 + 1, X86) == KILL
    assert verdict(make_filter("aarch64"), 64, X86) == KILL
