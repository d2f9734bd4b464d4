"""The ranks of one trainer: launch, rendezvous, heartbeat, topology, collectives."""
