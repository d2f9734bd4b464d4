"""Rules: pure functions of one sample, and the language of a completion."""
