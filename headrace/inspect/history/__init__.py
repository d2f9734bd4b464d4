"""The history checker: verifies offline that a run lost no group, trained none twice and used no unproven weights."""
