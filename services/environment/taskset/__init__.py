"""Tasksets of the package `verifiers`, played unchanged, as programs at the policy's endpoint."""
