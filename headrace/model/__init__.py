"""The model folder of a run: fetched, made or given, and checked without torch."""
