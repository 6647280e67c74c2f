"""Inside a sandbox: one process becomes the program's, the other its judge. `execute.py` starts it, from code it sends.

The judge alone reads the tests and the report's nonce, and empties their file. The program's process has none of its
descriptors and cannot read its memory: the judge is another user, or not dumpable. The report is "started", then one
line: nonce, kind, number of comparisons, and message and line of the tests in hex.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import gc
import marshal
import os
import resource
import sys
from importlib import import_module

from harness.sandbox.judge import judge, prepared
from harness.sandbox.program import serve
from harness.sandbox.values import Channel

TYPE_CHECKING = False  # typing takes longer to load than most programs to run
if TYPE_CHECKING:
    from typing import Any

NOT_DUMPABLE = (4, 0)  # prctl's PR_SET_DUMPABLE


def confine(limits: dict[str, int], user: int | None) -> None:
    """Become `user`, if one is named, and lower the limits (bytes, seconds or counts by the name in `resource`)."""
    try:  # if the machine runs out of memory, it is this process that goes; bubblewrap is started with that already
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 (here and below: what loads fast)
            file.write("1000")
    except OSError:
        pass
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)  # from root to a user: all capabilities go
    for name, value in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (lowered, lowered))


def main(request: dict[str, Any]) -> None:
    """Part from the judge, run the program, and leave without its exit handlers. request: the first part."""
    # What the interpreter's -S leaves out: the folders of packages, and what `site` puts into builtins.
    sys.path[:] = [path for path in sys.path if path] + request["paths"]
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()
    for name in request["preload"]:
        try:
            import_module(name)
        except Exception:  # then the program's import fails and says why
            continue
    gc.freeze()  # what is there before the two part is not written to by a collection, which would copy it
    questions, answers = os.pipe(), os.pipe()
    if os.fork() == 0:
        try:
            _become_program(request, Channel(questions[0], answers[1]), (questions[1], answers[0]))
        finally:
            os._exit(1)
    os.close(questions[0])
    os.close(answers[1])
    _become_judge(request, Channel(answers[0], questions[1]))
    os._exit(0)


def _become_program(request: dict[str, Any], channel: Channel, others: tuple[int, int]) -> None:
    leave = os._exit
    for descriptor in others:
        os.close(descriptor)
    confine(request["limits"], request["user"])
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    for name in request["hidden"]:
        del sys.modules[name]
    try:
        serve(channel, request["code"], request["guard"], request["seconds"])
    finally:
        leave(1)


def _become_judge(request: dict[str, Any], channel: Channel) -> None:
    user = request["user"]
    if user is not None:
        user += 1
    elif sys.platform == "linux":
        import ctypes  # here, for it takes time, and a change of user has the same effect

        ctypes.CDLL(None).prctl(*NOT_DUMPABLE, 0, 0, 0)
    left, parts = int.from_bytes(os.read(0, 8), "big"), []
    while left:
        parts.append(os.read(0, left))
        left -= len(parts[-1])
    tests = marshal.loads(b"".join(parts))
    os.ftruncate(0, 0)
    confine(request["limits"], user)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (keeps what tests print from the report)
    scope = prepared(tests)
    channel.receive()  # the program's process is ready
    os.write(1, b"started\n")
    kind, message, line, compared = judge(channel, tests, scope)
    texts = " ".join(text.encode("utf-8", "replace").hex() for text in (message, line))
    os.write(1, f"\n{tests['nonce']} {kind} {compared} {texts}\n".encode())
