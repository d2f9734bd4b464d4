"""The answer that a completion gives, read from its text: numbers, formulas, hedges, units."""
