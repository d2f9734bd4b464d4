"""Runs the user's code: environments and tools, in processes of their own."""
