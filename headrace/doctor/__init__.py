"""`headrace doctor`: can this machine run, and if not, what is to be done? Each check by itself, with a deadline."""
