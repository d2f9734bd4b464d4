"""A tree of scorers makes one score a sample: slots, circuits, combination."""
