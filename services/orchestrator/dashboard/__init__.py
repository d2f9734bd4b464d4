"""The dashboard's backend: reads a live or ended run and serves it over HTTP; `static/` is built from `ui/`."""
