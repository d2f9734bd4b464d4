"""Probes of what only a GPU can show: `headrace doctor --gpu`. Each probe is a process with a deadline."""
