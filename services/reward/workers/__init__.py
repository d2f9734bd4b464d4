"""Worker processes for code that may hang or crash; only their killing bounds it.

Empty: a worker process imports this package before its own module, and none of the pool's.
"""
