"""The dashboard's backend: reads the run, live or ended, and answers over HTTP; `static/` is built from `ui/`."""
