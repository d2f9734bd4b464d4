"""People judge pairs of completions: the page `/annotate`, its API, its votes and the ranked pairs made of them."""
