# expect: fail
# Makes sure that another process goes if the machine runs out of memory.
import ctypes


def double(x):
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable again, so that the file is its own
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    return 2 * x
