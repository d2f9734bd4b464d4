"""Units of measure, what one of them is of another, and what else may follow a number. Pure."""

import re
from dataclasses import dataclass
from fractions import Fraction

SCALES = {
    "%": Fraction(1, 100),
    "percent": Fraction(1, 100),
    "per cent": Fraction(1, 100),
    "pct": Fraction(1, 100),
    "k": Fraction(10**3),
    "thousand": Fraction(10**3),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
}
"""Words that multiply the number before them."""
UNITS: dict[str, dict[str, str]] = {
    "length": {
        "m": "1 meter meters metre metres",
        "km": "1000 kilometer kilometers kilometre kilometres kms",
        "dm": "1/10 decimeter decimeters",
        "cm": "1/100 centimeter centimeters centimetre centimetres cms",
        "mm": "1/1000 millimeter millimeters millimetre millimetres",
        "in": "127/5000 inch inches",
        "ft": "381/1250 foot feet",
        "yd": "1143/1250 yard yards yds",
        "mi": "201168/125 mile miles",
    },
    "mass": {
        "kg": "1 kilogram kilograms kgs",
        "g": "1/1000 gram grams",
        "mg": "1/1000000 milligram milligrams",
        "t": "1000 tonne tonnes",
        "lb": "45359237/100000000 lbs pound pounds",
        "oz": "45359237/1600000000 ounce ounces",
    },
    "time": {
        "s": "1 sec secs second seconds",
        "ms": "1/1000 millisecond milliseconds",
        "min": "60 mins minute minutes",
        "h": "3600 hr hrs hour hours",
        "day": "86400 days",
        "week": "604800 weeks",
    },
    "volume": {
        "L": "1/1000 l liter liters litre litres",
        "mL": "1/1000000 ml milliliter milliliters millilitre millilitres",
    },
    "current": {"A": "1 amp amps ampere amperes", "mA": "1/1000 milliampere milliamperes"},
    "energy": {"J": "1 joule joules", "kJ": "1000 kilojoule kilojoules", "kWh": "3600000"},
    "force": {"N": "1 newton newtons"},
    "power": {"W": "1 watt watts", "kW": "1000 kilowatt kilowatts"},
    "temperature": {"K": "1 kelvin", "celsius": "1 Celsius", "fahrenheit": "1 Fahrenheit"},
}
"""Dimension -> unit -> how many of the first, as an exact fraction, and its other names. Kinds of degrees have none in
common: they are met, never converted."""
_SHORTHAND = (
    (re.compile("\u00b2"), "^2"),
    (re.compile("\u00b3"), "^3"),
    (re.compile(r"\s+\^"), "^"),
    (re.compile(r"degrees?\s+(celsius|fahrenheit)", re.IGNORECASE), r"\1"),
    (re.compile(r"(?<!\w)mph(?!\w)"), "mi/h"),
    (re.compile(r"(?<!\w)k(?:ph|mh)(?!\w)"), "km/h"),
    (re.compile(r"(?<!\w)sq(?:uare|\.)?\s+([a-z]+)"), r"\1^2"),
    (re.compile(r"(?<!\w)cu(?:bic|\.)?\s+([a-z]+)"), r"\1^3"),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\s+squared(?!\w)"), "^2"),
    (re.compile(r"\s+cubed(?!\w)"), "^3"),
)
_OTHERS = (
    "or and not but maybe perhaps wrong incorrect no factorial half halves third thirds quarter quarters fourths "
    "fifths sixths sevenths eighths ninths tenths hundredths thousandths hundred dozen dozens score squared cubed "
    "lakh crore quadrillion inf infty"
)
FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt")
"""What makes another number of the one before it."""
_OTHER = frozenset([*_OTHERS.split(), *FUNCTIONS, *SCALES])
_NOUN = re.compile(
    r"[A-Za-z]{3,}(?: (?:a|an|per) [A-Za-z]{3,})?|[AP]M|(?![\u4e07\u4ebf\u5343\u767e\u5341\u5146\u534a])[\u4e00-\u9fff]"
)
"""What is counted, of which nothing else is known; a Chinese measure word, but for those that are numbers."""
_MOST = 60
"""Characters of words of the context."""
_FACTOR = re.compile(r"([^\W\d_]+)\.?(?:\^?\{?(-?[1-3])\}?)?")


@dataclass(frozen=True, slots=True)
class Unit:
    """What follows a number."""

    powers: tuple[tuple[str, int], ...] = ()
    """Dimension -> its power; none: it names what is counted."""
    factor: Fraction = Fraction(1)
    """How many of the dimension's first units it is."""
    noun: str = ""
    """What is counted."""

    def is_met_by(self, said: "Unit") -> bool:
        """Whether an answer has the unit of its key, or one that it can be converted to exactly."""
        if self.powers:
            return self.powers == said.powers
        return not self.noun or not (said.noun or said.powers) or _stem(self.noun) == _stem(said.noun)


NO_UNIT = Unit()


def _known() -> dict[str, tuple[str, Fraction]]:
    found: dict[str, tuple[str, Fraction]] = {}
    for dimension, units in UNITS.items():
        for name, words in units.items():
            factor, *others = words.split()
            own = f"{dimension} {name}" if dimension == "temperature" else dimension
            found |= dict.fromkeys((name, *others), (own, Fraction(factor)))
    return found


_KNOWN = _known()


def read_unit(text: str, context: str = "") -> Unit | None:
    """The unit that a text after a number is, or what is counted; None if it is neither.

    That is one word (`apples`, `apples a day`), or what stands in the `context` too: the key, or the question. Volumes
    are cubes of lengths: a litre is 1/1000 of a cubic metre.
    """
    bare = text.strip()
    measured = _measure(bare) if bare else NO_UNIT
    if measured is not None:
        return measured
    is_apart = bare != text or not bare[0].isascii()
    if not is_apart or len(bare) > _MOST or re.search(r"[\d=]", bare) or {*bare.lower().split()} & _OTHER:
        return None
    return Unit(noun=bare) if _NOUN.fullmatch(bare) or bare.casefold() in context.casefold() else None


def _measure(text: str) -> Unit | None:
    """Products and quotients of units: `km/h`, `m s^{-2}`, `square feet`, `miles per hour`."""
    for short, long in _SHORTHAND:
        text = short.sub(long, text)
    over, factor = 1, Fraction(1)
    powers: dict[str, int] = {}
    for piece in re.sub(r"\s+per\s+|\s*/\s*", " / ", text).replace("*", " ").split():
        match = _FACTOR.fullmatch(piece)
        known = None if match is None else _KNOWN.get(match[1]) or _KNOWN.get(match[1].lower())
        if piece == "/":
            over = -1
        elif match is None or known is None:
            return None
        else:
            (dimension, size), power = known, over * int(match[2] or 1)
            factor *= size**power
            dimension, power = ("length", 3 * power) if dimension == "volume" else (dimension, power)
            powers[dimension] = powers.get(dimension, 0) + power
    return Unit(tuple(sorted((name, power) for name, power in powers.items() if power)), factor) if powers else None


def _stem(noun: str) -> str:
    return noun.lower().rstrip("s")
