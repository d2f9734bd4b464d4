"""Processes of `python -P -m MODULE` that have imported torch and the libraries before they begin.

Imports are most of what a tiny run costs: six seconds of a CPU for its fork server, one for its supervisor, as much for
each service that is started apart. Here one process a worker of pytest imports them, and each other is forked from it,
by the product's own fork server. What imports could change in a process is not seen that way: so a process is executed
(`cold`) where its environment differs in more than Headrace's own variables, in the runs that others are compared with,
and everywhere if `HEADRACE_TESTS_COLD=1`.
"""
