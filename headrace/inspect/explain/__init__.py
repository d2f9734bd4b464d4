"""`headrace explain`: follows one group or rollout from prompt to step, from the files of the run."""
