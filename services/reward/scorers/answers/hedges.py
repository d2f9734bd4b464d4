r"""What takes an answer back, or leaves it open: `17, not 18`, `18 or 19`, `at least 18`, `twice 18`. Pure."""

import re
from collections import deque

_FILLERS = (
    r"(?:(?:be|been|being|equal|equals|to|the|a|an|exactly|simply|just|have|has|had|actually|really|even|of|number"
    r"|value|answer|it|is|option|choice)\s+){0,4}"
)
_VALUE = r"(?=[-+\u2212(\[{$\\\u20ac\u00a3]{0,4}(?:[\d.]|(?-i:[A-Z])\b|\\|sqrt|pi\b|(?<=\$)\w))"
_NOT = (
    r"(?:\b(?:is|are|was|were|do|does|did|could|would|should|must|has|have|had|ca|wo)n['\u2019]t"
    r"|\b(?:cannot|not|never|neither|nor|anything\s+but|far\s+from))"
)
_REJECTED = re.compile(
    rf"""
    [\s,;(\u2013\u2014-]{{0,4}} (?: \b(?:and|but|certainly|definitely|surely|clearly)\s+ ){{0,2}}
    (?: {_NOT} \s+ {_FILLERS} {_VALUE}
      | \\neq?(?![A-Za-z]) | \u2260 | !=
      | \b(?:rather|other|different)\s+than\b | \binstead\s+of\b | \bas\s+opposed\s+to\b | \bunlike\b )
    (?: \$[^$\n]*\$ | \([^()\n]{{0,80}}\) | (?! ,(?!\d) | ; | \.(?!\d) | \) | \b(?:but|is|are|was|were)\b | \n ) . )*
    \)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NEGATED = re.compile(rf"{_NOT}(?:\s|$)|\b(?:wrong|incorrect)\b", re.IGNORECASE)
_NO_IDEA = re.compile(
    r"\b(?:do\s+not|don['\u2019]t|cannot|can['\u2019]t|can\s+not|not)\s+(?:be\s+)?"
    r"(?:know|tell|say|determine|determined|sure|possible)\b|\bno\s+idea\b|\bunknown\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"""
    (?: ^ | [.!?,;:)\u2013\u2014-] | \n ) [\s*"]{0,4}
    (?: no,?\ wait | wait,?\ no | no,?\ actually | actually,?\ no | (?:scratch|strike)\ that )
    (?: \s*+ [.,:;!\u2013\u2014-]++ \s*+
        (?! that(?:'s|\ is)\ (?:right|correct|it)\b | (?:it|this)(?:'s|\ is)\ (?:right|correct)\b )
      | \s+ (?= [-$\\(]?\d | \\ | (?:it|that|this|the\ (?:final\ )?answer)(?:'s|\ is|\ should|\ must)\b )
      | \s* $ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SEEN = 120
_BOUND = re.compile(
    r"""
    (?: \b(?:more|greater|less|fewer|larger|smaller|higher|lower|bigger|longer|shorter)\s+than (?:\s+or\s+equal\s+to)?
      | \bat\s+(?:least|most) | \bup\s+to | \bbetween | \bexceed(?:s|ing)? | \b(?:no|a)\s+(?:minimum|maximum)\s+of
      | \b(?:any(?:thing|where)?|something)\s+(?:over|under|above|below)
      | (?<![-=<>])[<>\u2264\u2265]=? | \u00b1 | \\pm | \\(?:le|ge|leq|geq|lt|gt|leqslant|geqslant) )
    \s* (?:the\s+|an?\s+)? $
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BOUND_OUTRIGHT = re.compile(
    r"(?:^|\b(?:is|be)\s+)\s*(?:over|under|above|below|beyond|almost\s+all)\s*$", re.IGNORECASE
)
_OPERATOR = re.compile(
    r"""
    (?: \b(?:twice|thrice|double|triple|half|quadruple|minus|plus|times|multiplied\s+by|divided\s+by|sqrt)
      | \b(?:third|quarter|fifth|tenth|root|square|cube|double|triple|factorial|percent)\s+of | %\s+of
      | \\(?:sqrt|sin|cos|tan|log|ln|exp|pi|[dt]?frac|binom)\s*\{?
      | (?:\d|[)}\]]|\b[A-Za-z])\s*[-+*/^_] | [\^_] | [\u221a]
      | (?:^|[\s=$])-\s*(?=[({]) )
    \s* (?:of\s+)? (?:the\s+)? [({]? $
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MORE_BEHIND = re.compile(
    r"""
    \s*-?\s* (?:(?!or\b|to\b|and\b)[A-Za-z]+\s+)?
      (?: or\s+(?:more|less|fewer|greater|higher|lower|above|below|over|under|larger|smaller)\b
        | (?:is|are|was|were)(?:n['\u2019]t|\s+(?:not|wrong|incorrect|false|too))\b
        | (?:more|less|fewer)\s+than\s+\$?\d
        | (?:squared|cubed|factorial|minus|plus|multiplied|divided)\b | times\s+(?:as|more|the|\$?\d)
        | to\s+the\s+(?:power|\w+\s+power)\b )
    | \s*-?\s*(?:halves|thirds|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|hundredths|thousandths
        |hundred)\b
    | \s*[*^_]\s*[\w\\({] | \s*/\s*[\d\\({] | \s*\+ | \s*\\(?!text)[A-Za-z] | \s*[<>\u2264\u2265\u221a](?![<>])
    | \s+x\s*\d
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPEN = re.compile(r"\W*(?:[A-Za-z]+\s*)?[,;(]?\s*\bor\b", re.IGNORECASE)
_BETWEEN = re.compile(r"[A-Za-z]+|[^\sA-Za-z]")
_OTHER = "or to through minus plus times x divided multiplied over maybe perhaps possibly versus vs alternatively"
_ALTERNATIVE = {*_OTHER.split(), *"\u2013-/*+^:&|\\"}
_LINKS = (
    "after for in per with at on of each every within during from because since than where which as when so if by out "
    "left making given using that who while until are was were"
)
_PROSE = set(_LINKS.split())
"""What stands before a number that is no second answer."""
_MEASURE = r"(?:hours?|hrs?|h|minutes?|mins?|feet|foot|ft|pounds?|lbs?|years?|months?|weeks?|days?|dollars?|yards?)"
_COMPOUND = re.compile(rf"\s*{_MEASURE}\s*,?\s*(?:and)?\s*", re.IGNORECASE)
_PART = re.compile(rf"\s*(?:{_MEASURE}|seconds?|secs?|inch(?:es)?|in|ounces?|oz|cents?)\b", re.IGNORECASE)
_SIDE_BY_SIDE = re.compile(
    r"""
    (?: [,;]?\s*\b(?:or|to|through|minus|plus|times|x|over|divided\s+by|multiplied\s+by|maybe|perhaps)
        (?:\s+(?:maybe|perhaps|even|else))? (?:\s+[A-Za-z]\w{0,12}\s*=)?
      | and | [A-Za-z]+\s+or | [,;]?\s*\b(?:or\s+)?(?:it\s+)?(?:could|might|may)\s+be
      | [-\u2013\u2014/*+^'"&~|\\]+ | \.{2,3} | \(? )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def behind_retraction(text: str) -> str:
    """What stands behind the last place where a text takes back all before it; the whole text if it takes nothing back.

    `The answer is 18. No wait, 19` gives 19; a text that takes an answer back and states no other has none. The words
    begin a clause and end one, or lead to an answer: `there is no wait` and `wait, no need to round` take nothing back.
    """
    found = deque(_TAKEN_BACK.finditer(text), maxlen=1)
    return text[found[0].end() :] if found else text


def without_rejected(text: str) -> str:
    """Removes from a text what it rejects as the answer; the text as it is if it rejects nothing."""
    kept = _REJECTED.sub(" ", text)
    return text if kept == text else kept.strip(" ,;")


def is_negation(text: str) -> bool:
    """Whether a few words are a negation."""
    return _NEGATED.search(text) is not None


def knows_nothing(text: str) -> bool:
    """Whether it states that the answer is unknown."""
    return _NO_IDEA.search(text) is not None


def is_limited(before: str, behind: str) -> bool:
    """Whether the words around a number make a bound or an operand of it."""
    before = before[-_SEEN:]
    kinds = (_BOUND, _BOUND_OUTRIGHT, _OPERATOR)
    return any(kind.search(before) for kind in kinds) or _MORE_BEHIND.match(behind[:_SEEN]) is not None


def is_open(behind: str) -> bool:
    """Whether an "or" follows at once."""
    return _OPEN.match(behind[:_SEEN]) is not None


def leaves_open(between: str) -> bool:
    """Whether two numbers of a stated answer, with this between them, are both meant: all but prose."""
    for word in _BETWEEN.findall(between.lower()):
        if word in _ALTERNATIVE:
            return True
        if word in _PROSE:
            return False
    return True


def is_side_by_side(before: str, between: str, behind: str) -> bool:
    """Whether two numbers of a sentence, with this between them, are one list, range or compound."""
    if "=" in between:
        return re.search(r"\bor\b", between) is not None
    if between == ":":
        return True
    if between.strip() in (",", ";"):
        return not re.search(r"[A-Za-z]", behind) and re.search(r"(?:^|[=:]|\b(?:is|are|be))\s*$", before) is not None
    if between.strip().lower() == "to" and re.search(r"\bfrom\s+$", before):
        return False
    if _COMPOUND.fullmatch(between):
        return _PART.match(behind) is not None
    return _SIDE_BY_SIDE.fullmatch(between.strip()) is not None
