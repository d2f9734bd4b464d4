"""Plays episodes: conversations of the policy with tools and environments, as groups of rollouts."""
