"""Places of a page between `<!-- name -->` and `<!-- /name -->`, whose text is generated."""


def replaced(page: str, name: str, text: str) -> str:
    """The page with this text, which ends in a newline, at the place. Raises ValueError if the page lacks it."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no {begin.strip()} ... {end}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"
