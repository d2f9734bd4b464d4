"""The rollout service: prompts in, rollouts out."""
