"""Publication as the trainer sees it: snapshots, their transfer, their disk copies, and the Publish call."""
