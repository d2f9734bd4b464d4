"""The discriminator: a classifier that is trained beside the policy, on its rollouts against references."""
