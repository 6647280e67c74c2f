# expect: fail
# Starts programs that wait, as many as it gets.
import os


def double(x):
    while True:
        os.posix_spawn("/bin/sleep", ["sleep", "3608"], {})
