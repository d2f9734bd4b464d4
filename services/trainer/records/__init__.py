"""Records of a step for people: `metrics.jsonl`, the rollouts of each step, gauges."""
