"""All that crosses a process border, and what every process begins with.

Imported as `headrace.wire`, which is a link to this folder.
"""

if __name__ != "headrace.wire":
    raise ImportError(f"{__name__!r} is not a package of its own: import headrace.wire")
