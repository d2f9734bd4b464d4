"""Losses as pure functions of logprobs, advantages and values."""
