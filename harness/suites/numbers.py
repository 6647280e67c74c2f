"""Numbers in text, for `judge=number`: read in full or not at all, so that no part of one is taken for the whole."""

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

BESIDE = " \t\r\n.\\$€£¥₹"  # what may stand around a reference
FINAL = "####"  # before the answer of a solution in GSM8K's format
# Digits and what may stand between them: dates, times, ratios, powers, 0x10 and "1 234" are such runs, and no numbers.
BETWEEN = r"[.,:/^]+[-+]?\.?[0-9]+|[eE][-+]?[0-9]+|(?:-[0-9]+){2}|[A-Za-z_]+[0-9]+"
# What multiplies the number before it.
SCALE = (
    r"\s?(?:[√π]|\b(?i:hundred|thousand|[mb]illion|trillion|dozen|lakh|crore|squared|cubed)s?\b)"
    r"|(?:[kKMGTB]|[bm]n)\b|[百千万萬亿億‰]"
)
RUN = re.compile(
    rf"(?<![\w/^])(?<![0-9][.,:])(?P<sign>(?<![\w)])[-+])?(?P<root>[√±])?"
    rf"(?P<digits>[0-9]{{1,3}}(?: [0-9]{{3}})+(?![0-9])|(?:(?<!\.)\.)?[0-9]+(?:{BETWEEN})*)"
    rf"(?P<percent>\s?%|\s(?:percent|per cent)\b)?(?P<scale>{SCALE})?"
)
ONE = re.compile(r"((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?)(?:[eE]([-+]?[0-9]{1,3}))?|([0-9]+)/([0-9]+)")
INVISIBLE = re.compile("[\u200b-\u200d\u2060\ufeff]")
BRACES = r"\s*\{(?:[^{}]|\{[^{}]*\})*\}?"  # an argument in LaTeX
# What is written in another way, as RUN reads it. A ^ joins what would else become one number, or two: 3½, 2 1/2, 10²;
# 0^0 stands for what is no number: a fraction of letters, and "is.5", which may be 5 or one half.
WRITTEN = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<=[0-9])[~'\u2019\u00a0\u2009\u202f\u2007](?=[0-9]{3}(?![0-9]))|\{,\}|\\,", ","),
        (r"(?<=[0-9])[^\S\t\n]?(?=\\(?:[cdt]|nice)?frac)", "^"),
        (
            r"\\(?:[cdt]|nice)?frac\s*(?:\{\s*([-+]?[0-9]+)\s*\}|([0-9]))\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))",
            r"\1\2/\3\4",
        ),
        (rf"\\(?:[cdt]|nice)?frac{BRACES}{BRACES}?", "0^0"),
        (r"\\sqrt\s*(?:\[[^]]{0,9}\]\s*)?\{?", "√"),
        (r"\\pi\b", "π"),
        (r"\\%", "%"),
        (r"(?<=[0-9])\*\*(?=[-+]?[0-9])", "^"),
        (r"([\^_])\s*\{\s*(?=[-+]?[0-9])", r"\1"),
        (r"(?<=[0-9])\.?\\overline\s*\{", "^0"),
        (r"(?<=\^)\s*[-+]?(?=[0-9])", ""),
        (r"(?<=[0-9])\s?(?:[/÷\u2044\u2215]|\\over(?![a-z]))\s?(?=[0-9])", "/"),
        (r"(?<=[0-9])[^\S\t\n](?=[0-9]+/[0-9])", "^"),
        (r"[\u2010-\u2013\u2212]", "-"),
        (r"(\\[A-Za-z]+|[\u3040-\u9fff\uac00-\ud7af])(?=[-+]?\.?[0-9])", r"\1 "),
        (r"(?<=[^\W0-9_])\.(?=[0-9])", " 0^0"),
        (r"(?<![0-9])(?<![0-9]\s)\b(?i:minus|negative)\s(?=[.0-9])", "-"),
        (r"(?<=[=({<>])(\s?[-+])\s(?=[.0-9])", r"\1"),
        (r"([-+])\s?(\\?[$€£¥₹])\s?(?=[.0-9])", r"\2\1"),
    )
)


@dataclass(frozen=True)
class Number:
    """A value as it is written, 12 of 12%, and whether a percent sign follows it."""

    value: Fraction
    percent: bool = False

    def equals(self, other: "Number") -> bool:
        """Whether both are one number; where just one has a percent sign, it may also be a part of 100."""
        if self.value == other.value:
            return True
        parts = [each.value / 100 if each.percent else each.value for each in (self, other)]
        return parts[0] == parts[1]


def numbers_in(text: str) -> list[Number | None]:
    """Every run of digits of a text: as a number, or None where it is none, say 12:30, 1.234,56, 10^2, √2, 5k.

    Read are signs, thousands between commas, .5, 1e-5, fractions 3/4 (also LaTeX's) and percent.
    """
    return [_number(found) for found in RUN.finditer(_as_read(text))]


def _as_read(text: str) -> str:
    text = _plain(text)
    for pattern, plain in WRITTEN:
        text = pattern.sub(plain, text)
    return text


def _plain(text: str) -> str:
    """In NFKC, where a character that becomes digits after others is a power or a part, and no further digit."""
    plain = ""
    for each in INVISIBLE.sub("", text):
        same = each if each.isspace() else unicodedata.normalize("NFKC", each)
        part = not each.isascii() and same[:1].isdigit() and not "\uff10" <= each <= "\uff19"
        if each in "⁺⁻₊₋" or (part and plain.rstrip(" ")[-1:].isdigit()):
            plain = plain.rstrip(" ") + "^"
        plain += "" if each in "⁺⁻₊₋" else same
    return unicodedata.normalize("NFC", plain)


def _number(found: re.Match[str]) -> Number | None:
    whole = ONE.fullmatch(found["digits"])
    if whole is None or found["root"] or found["scale"] or (whole[4] and not whole[4].strip("0")):
        return None
    over, under = (whole[3], whole[4]) if whole[4] else (f"{whole[1].replace(',', '')}e{whole[2] or 0}", "1")
    value = Fraction(Decimal(over)) / Fraction(Decimal(under))  # a Decimal may have any number of digits
    return Number(-value if found["sign"] == "-" else value, bool(found["percent"]))


def last_number(text: str) -> Number | None:
    """The last run of digits of a text as a number; None where there is none, or where it is no number."""
    return ([None, *numbers_in(text)])[-1]


def only_number(text: str) -> Number | None:
    """The number that a reference is, of a solution in GSM8K's format what follows ####; None where it is not one, or
    more than one: a word or sign beside it might say another one."""
    answer = _as_read(text.rpartition(FINAL)[2])
    found = [*RUN.finditer(answer)]
    alone = len(found) == 1 and not RUN.sub("", answer).strip(BESIDE)
    return _number(found[0]) if alone else None
