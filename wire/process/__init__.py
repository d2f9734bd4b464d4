"""How every process begins, waits and ends: settings, environment, deadlines, threads, exit codes, failpoints."""
