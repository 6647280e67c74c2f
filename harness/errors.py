"""Errors for people: one line that says what was wrong, what was expected and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user asked for cannot be done; the message is the whole answer."""


def one_line_errors(main: Callable[[], int]) -> int:
    """Run a command line; a `UserError` or `ValueError` becomes one line on stderr and exit code 2."""
    try:
        return main()
    except (UserError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: finished items are kept; go on with --resume", file=sys.stderr)
        return 130
