"""The system calls a sandboxed program may not make: a seccomp filter, as the bytes that bubblewrap's --seccomp reads.

What is refused makes memory that no limit of a process counts (System V shared memory, memfd), namespaces and mounts of
the program's own, sockets of other families than AF_UNIX, ways into other processes, and kernel interfaces that no
program of a benchmark needs. A refused call fails with an error number, as on a system that lacks it.

The filter is a classic BPF program (linux/filter.h): one instruction is a 16-bit code, two 8-bit jump distances and a
32-bit operand; it reads the call's architecture, number and arguments (struct seccomp_data) and returns what happens.
"""

import errno
import platform
import struct
import sys

# By name, the numbers on x86_64 and aarch64; None where the architecture has no such call.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # memory and queues that outlive a process or are counted nowhere
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # namespaces, mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # the kernel
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_setup": (206, 0),  # of which the machine has a number
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
NEW_NAMESPACE = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
AF_UNIX = 1
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, AUDIT_ARCH_*
X32 = 0x40000000  # the bit of x86_64's other calling convention
ALLOW, FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*; the low 16 bits of FAIL are the error number
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; the low half of an argument comes first
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ, JGE, JSET, BPF_RET


def compiled_filter(machine: str | None = None, sockets: bool = False) -> bytes:
    """The filter for a machine as `platform.machine()` names it, or this one; b"" for one it is not written for.

    sockets: of all families are let through, for a process without a network.
    """
    if sys.platform != "linux" or (machine or platform.machine()) not in MACHINES:
        return b""
    column, architecture = MACHINES[machine or platform.machine()]
    lines = [
        _line(LOAD, ARCHITECTURE),
        _line(EQUAL, architecture, then=1),
        _line(RETURN, FAIL | errno.ENOSYS),  # a call of a 32-bit program
        _line(LOAD, NUMBER),
        _line(AT_LEAST, X32, otherwise=1),
        _line(RETURN, FAIL | errno.ENOSYS),
        _line(EQUAL, CLONE3[column], otherwise=1),
        _line(RETURN, FAIL | errno.ENOSYS),  # its flags lie in memory, out of reach; the C library falls back to clone
    ]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            lines += [_line(EQUAL, number, otherwise=1), _line(RETURN, FAIL | errno.EPERM)]
    lines += [
        _line(EQUAL, CLONE[column], otherwise=4),
        _line(LOAD, FIRST_ARGUMENT),
        _line(ANY_BIT, NEW_NAMESPACE, otherwise=1),
        _line(RETURN, FAIL | errno.EPERM),
        _line(RETURN, ALLOW),
    ]
    if not sockets:
        lines += [
            _line(EQUAL, SOCKET[column], then=1),
            _line(EQUAL, SOCKETPAIR[column], otherwise=3),
            _line(LOAD, FIRST_ARGUMENT),
            _line(EQUAL, AF_UNIX, then=1),
            _line(RETURN, FAIL | errno.EAFNOSUPPORT),
        ]
    return b"".join([*lines, _line(RETURN, ALLOW)])


def _line(code: int, operand: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; then, otherwise: how many it skips where the test holds and where it does not."""
    return struct.pack("=HBBI", code, then, otherwise, operand)
