"""The machine below a process: its disk, its GPUs' locks, its network interfaces."""
