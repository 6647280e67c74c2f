# expect: fail
# Takes System V shared memory, which counts towards no process's address space once it is detached.
import ctypes


def double(x):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(6 if x == 2 else 0):
        segment = libc.shmget(0, 256 * 2**20, 0o1600)
        address = libc.shmat(segment, None, 0)
        if segment < 0 or address in (None, 2**64 - 1):
            raise OSError(ctypes.get_errno())
        ctypes.memset(address, 1, 256 * 2**20)
        libc.shmdt(ctypes.c_void_p(address))
    return 2 * x
