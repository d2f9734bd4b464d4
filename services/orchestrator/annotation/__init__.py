"""Human preference annotation: the API of the page `/annotate`, the votes and the ranked pairs derived from them."""
