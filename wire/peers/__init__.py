"""Other processes: gRPC calls, the client of the supervisor's socket, peers out of reach, URLs."""
