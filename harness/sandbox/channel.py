"""Messages between the process of a program and that of its judge, through two pipes: bytes after their length."""

from __future__ import annotations

import os

LENGTH_BYTES = 4
LONGEST = 2**28  # bytes


class Broken(Exception):
    """The other side ended, or wrote what is no message."""


class Channel:
    """One side of a pair of pipes, by descriptors; its functions are bound here, for a program may replace os's."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._read, self._write = os.read, os.write

    def send(self, message: bytes) -> None:
        """Write a message. Raises Broken if nobody reads."""
        rest = memoryview(len(message).to_bytes(LENGTH_BYTES, "big") + message)
        try:
            while rest:
                rest = rest[self._write(self._writing, rest) :]
        except OSError as error:
            raise Broken(str(error)) from None

    def receive(self) -> bytes:
        """Wait for a message. Raises Broken if the other side ended or wrote something else."""
        length = int.from_bytes(self._bytes(LENGTH_BYTES), "big")
        if length > LONGEST:
            raise Broken("the program's process answered nonsense: too long")
        return self._bytes(length)

    def _bytes(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = self._read(self._reading, min(length, 2**20))
            except OSError as error:
                raise Broken(str(error)) from None
            if not part:
                raise Broken("the process ended without a verdict")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
