"""A signal that was set aside before the command began, as by `nohup` or a shell's `&`, does not stop it."""

import signal
import subprocess
import sys

import pytest

LISTENS = """
import asyncio, signal
from headrace.supervisor.stop_signals import StopSignals

async def main():
    signals = StopSignals(lambda words: print(words, flush=True))
    signals.listen()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: print("goes on", flush=True))
    print("listens", flush=True)
    await asyncio.wait_for(signals.asked.wait(), 60)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("ignored", [True, False])
def test_signals_ignored_at_start_stay_ignored(number: signal.Signals, ignored: bool) -> None:
    action = signal.SIG_IGN if ignored else signal.SIG_DFL
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, action),
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "listens\n"
        process.send_signal(number)
        if ignored:
            for _ in range(2):  # Of two signals at a time the later one may be handled first.
                process.send_signal(signal.SIGUSR1)
                assert process.stdout.readline() == "goes on\n"
            process.send_signal(signal.SIGTERM)
        assert process.stdout.read().startswith("stopping: ")
        assert process.wait(60) == 0
