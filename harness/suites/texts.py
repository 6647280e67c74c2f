"""How judges normalise and compare texts."""

import json
import unicodedata
from typing import Any, TypeGuard


def plain(text: str) -> str:
    """The text without case, whitespace as single blanks.

    Source: the Unicode Standard, D145, canonical matching.
    """
    # Case folding can undo the decomposition, hence NFD before and after it.
    folded = unicodedata.normalize("NFD", text).casefold()
    return " ".join(unicodedata.normalize("NFD", folded).split())


def text_of(value: Any) -> str:
    """A value of a file of questions as text: a number, list or object as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())
