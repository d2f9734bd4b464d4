"""Weight updates of a replica, and the trust in the trainer's checksums."""
