"""The run's state: the durable store, the registry of replicas, the operator requests."""
