"""The Python API: it starts the command line, and reads and writes the files that the command line does."""
