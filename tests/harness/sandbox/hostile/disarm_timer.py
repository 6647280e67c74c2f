# expect: fail
# Switches the time limit's timer off and never returns.
import signal

signal.setitimer(signal.ITIMER_REAL, 0)


def double(x):
    while True:
        pass
