"""`headrace doctor`: checks whether this machine can run, and how to fix it. Each check runs alone, with a deadline."""
