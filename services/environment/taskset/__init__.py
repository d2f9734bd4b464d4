"""Tasksets of the package `verifiers`, played unchanged: it renders and plays, the policy is its generate route."""
