"""Headrace, the one installed package: the command line, with the services and contracts linked here."""
