"""Models as scorers: reward models, classifiers, the discriminator, endpoints."""
