"""One replica's lifecycle: states, gate, heartbeat, groups, drain and GPU turns."""
