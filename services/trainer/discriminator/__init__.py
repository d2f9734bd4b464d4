"""The discriminator: a classifier trained beside the policy, to separate its rollouts from references."""
