"""Mathematical answers: equal as a person would call them equal."""
