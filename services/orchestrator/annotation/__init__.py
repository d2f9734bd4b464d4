"""Human preference annotation: the page `/annotate`, its API, the votes and the ranked pairs derived from them."""
