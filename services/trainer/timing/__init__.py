"""Where the time of a step goes: phases, traces, device clocks."""
