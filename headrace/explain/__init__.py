"""`headrace explain`: the life of one group or rollout, from prompt to step, out of what the run has written."""
