"""Renders the turns of an episode (`wire/rendering`, or a family's renderer), and reads what the policy said."""
