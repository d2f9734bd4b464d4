"""Language models as judges, over any endpoint that speaks OpenAI's chat completions."""
