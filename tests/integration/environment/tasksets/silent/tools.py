import verifiers.v1 as vf


class Tools(vf.Toolset[vf.ToolsetConfig]):
    """Its module does not run it."""
