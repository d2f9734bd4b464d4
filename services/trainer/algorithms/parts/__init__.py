"""The parts of algorithms, each declared once: its function, its options, and what it needs. Imports no torch.

Every module here is loaded by `registry.py`; a new part is a decorated function in one of them, or in a new one.
"""
