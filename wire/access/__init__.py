"""Access to the gRPC services of a run: roles, one token each, and what each method's role may be."""
