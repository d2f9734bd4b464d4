"""Plays any program as an agent: it speaks to an OpenAI-compatible endpoint, which is the policy."""
