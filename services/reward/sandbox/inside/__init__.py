"""What runs inside a sandbox: a fork server and, in each child it forks, one test of one program.

Only the standard library is imported here: of Headrace, the sandbox sees this folder alone.
"""
