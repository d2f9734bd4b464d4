"""The verbs of `headrace`: one module a verb, and what they share."""
