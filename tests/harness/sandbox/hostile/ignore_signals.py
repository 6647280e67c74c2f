# expect: fail
# Ignores the time limit's signal and every other that can be ignored, and never returns.
import signal

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass


def double(x):
    while True:
        pass
