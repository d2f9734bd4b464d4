"""What a worker runs of a user's function: it imports what the function's call needs, and nothing of the pool."""
