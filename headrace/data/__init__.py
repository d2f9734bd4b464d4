"""Turns a file of prompts into the rendered and tokenized `prompts.parquet`."""
