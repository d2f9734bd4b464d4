"""A reward of your own: any function of the completion and the row's columns. Name it `module:function`."""


def closeness(completion: str, *, answer: str, **columns: object) -> float:
    """1 for the right sum, less the farther off it is, 0 for no number at all."""
    text = completion.strip()
    if not text.isdecimal():
        return 0.0
    return 1.0 / (1.0 + abs(int(text) - int(answer)))
