"""State that survives `kill -9`: the ledger, its journal, checkpoints; and the points where tests kill."""
