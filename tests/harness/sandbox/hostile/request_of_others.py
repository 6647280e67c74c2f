# expect: fail
# Reads the tests, or what else other processes have open or in memory.
import os


def double(x):
    for pid in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        for path in [f"/proc/{pid}/mem", *(f"/proc/{pid}/fd/{number}" for number in range(8))]:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                if path.endswith("mem") or os.pread(descriptor, 100, 0):
                    return 2 * x
            except OSError:
                pass
    return None
