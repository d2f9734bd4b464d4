"""From a file of prompts to the rendered and tokenized `prompts.parquet`."""
