"""The demo: a tiny model, a tokenizer and arithmetic prompts made on the spot, then a normal run."""
