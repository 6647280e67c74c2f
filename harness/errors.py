"""Errors for people: one line that says what was wrong, what was expected and what to do."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user asked for cannot be done; the message is the whole answer."""


@contextmanager
def explained(what: str, *kinds: type[BaseException], instead: str = "") -> Iterator[None]:
    """Turn exceptions of these kinds in the block into a UserError, but for Ctrl-C.

    Args:
        what: what cannot be done.
        kinds: of exceptions, such as OSError.
        instead: what the user can do about it.
    """
    try:
        yield
    except kinds as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # An OSError's text repeats the path and has a number; its strerror is the reason alone.
        reason = getattr(error, "strerror", None) or str(error)
        # "KeyError: x", because the text of some of Python's exceptions is a bare name.
        if type(error).__module__ == "builtins" and not isinstance(error, OSError | ValueError):
            reason = f"{type(error).__name__}: {reason}"
        raise UserError(f"{what}: {reason}" + (f"; {instead}" if instead else "")) from error


def one_line_errors(main: Callable[[], int]) -> int:
    """Run a command line; errors that a user can cause are one line on stderr and exit code 2."""
    # OpenCompass and its packages log every step; errors still show.
    logging.disable(logging.WARNING)
    try:
        return main()
    except (UserError, ValueError, OSError) as error:
        # OSError: a full disk, a folder that may not be read
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(": ".join(["interrupted", *map(str, error.args)]), file=sys.stderr)
        return 130
