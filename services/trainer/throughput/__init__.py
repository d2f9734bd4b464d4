"""What a step costs and how fast it was: model FLOPs, tokens a second, MFU, peak memory."""
