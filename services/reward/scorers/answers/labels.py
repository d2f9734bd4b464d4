"""Words that announce an answer, by language: what follows the last of them is the answer. Data."""

import re

LABELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "English": (("(?:the )?(?:final |correct )?answer", "option", "choice"), ("is option", "is choice", "is")),
    "German": (("Antwort",), ("ist", "lautet")),
    "French": (("r\u00e9ponse", "r\u00e9ponse finale"), ("est",)),
    "Spanish": (("respuesta", "respuesta correcta", "respuesta final"), ("es",)),
    "Portuguese": (("resposta", "resposta correta", "resposta final"), ("\u00e9",)),
    "Italian": (("risposta", "risposta corretta", "risposta finale"), ("\u00e8",)),
    "Russian": (("\u043e\u0442\u0432\u0435\u0442",), ()),
    "Chinese": (("\u7b54\u6848",), ("\u662f", "\u4e3a", "\u70ba")),
    "Japanese": (("\u7b54\u3048", "\u89e3\u7b54"), ("\u306f",)),
    "Korean": (("\uc815\ub2f5", "\ub2f5"), ("\uc740",)),
}
"""Language -> nouns, of which one is followed by a colon, an equals sign or one of the verbs."""
_SHORT = "A"
"""The label of a dialogue, `A: 18`, at the begin of a line."""
_SIGN = r"[ \t*_]*[:=]"


def _pattern(short: str) -> "re.Pattern[str]":
    words = []
    for nouns, verbs in LABELS.values():
        goes_on = "(?![a-z'\u2019])" if nouns[0].lower() < "\u0400" else ""
        verb = rf"|[ \t]*(?:{'|'.join(verbs)}){goes_on}(?:{_SIGN})?" if verbs else ""
        words.append(rf"(?:{'|'.join(nouns)})(?:{_SIGN}{verb})")
    # Latin words end where a letter of theirs would go on; Chinese is written without spaces.
    return re.compile(rf"(?<![a-z])(?:{'|'.join(words)}){short}", re.IGNORECASE)


LABEL = _pattern("")
LABEL_OR_SHORT = _pattern(rf"|(?m:^[ \t*_>]*{_SHORT}){_SIGN}")
"""The same with the label of a dialogue, for keys that are not an option."""
