"""Errors for people: one line that says what was wrong, what was expected and what to do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user asked for cannot be done; the message is the whole answer."""


@contextmanager
def explained(what: str, *kinds: type[BaseException], instead: str = "") -> Iterator[None]:
    """An exception of these kinds in this block as a UserError: what went wrong, the reason, and
    what to do instead.

    Ctrl-C stays what it is.
    """
    try:
        yield
    except kinds as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        if type(error).__module__ == "builtins" and not isinstance(error, OSError | ValueError):
            reason = f"{type(error).__name__}: {reason}"  # without it some are a bare name
        raise UserError(f"{what}: {reason}" + (f"; {instead}" if instead else "")) from error


def one_line_errors(main: Callable[[], int]) -> int:
    """Run a command line; what can go wrong for a user becomes one line on stderr and exit code
    2."""
    try:
        return main()
    except (UserError, ValueError, OSError) as error:
        # OSError: a full disk, a folder that may not be read
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(": ".join(["interrupted", *map(str, error.args)]), file=sys.stderr)
        return 130
