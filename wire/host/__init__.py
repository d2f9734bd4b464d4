"""The machine below a process: its disk and files, its GPUs' locks, its network interfaces."""
