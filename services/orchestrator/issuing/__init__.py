"""Issuing of prompts within credit, re-issuing of lost ones, dead letters, and evaluations."""
