"""The services; they never import each other. Imported as `headrace.services`, which is a link to this folder."""

if __name__ != "headrace.services":
    raise ImportError(f"{__name__!r} is not a package of its own: import headrace.services")
