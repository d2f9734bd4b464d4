"""What only a GPU can show, tried on this one: `headrace doctor --gpu`. Each probe is a process with a deadline."""
