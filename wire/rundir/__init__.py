"""The run directory, `RUN/`: the place of everything it holds, and for each file one schema, one writer, one reader."""
