"""Renders messages and tools to token ids with a model's own tokenizer and chat template, for every process."""
