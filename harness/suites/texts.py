"""Texts as judges compare them."""

import json
import unicodedata
from typing import Any, TypeGuard


def plain(text: str) -> str:
    """The text without case, whitespace as single blanks.

    Source: the Unicode Standard, D145, canonical matching.
    """
    folded = unicodedata.normalize("NFD", text).casefold()
    return " ".join(unicodedata.normalize("NFD", folded).split())


def text_of(value: Any) -> str:
    """A value of a file of questions as text: what is no text as JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())
