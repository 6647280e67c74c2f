"""The system calls a sandboxed program may not make: a seccomp filter, as the bytes that bubblewrap's --seccomp reads.

A refused call fails with an error number, as on a system that lacks it.
"""

import errno
import functools
import socket
import tempfile

REFUSED = [
    # memory and queues that outlive a process
    *("shmget", "shmat", "shmctl", "semget", "msgget", "mq_open", "memfd_create", "memfd_secret"),
    # namespaces, mounts
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr"),
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_open", "pidfd_getfd", "kcmp"),
    # the kernel
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_setup", "io_uring_setup"),
    *("io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at", "open_by_handle_at", "personality"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff"),
    *("syslog", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt"),
]
NEW_NAMESPACES = [0x20000 << bit for bit in range(14) if 0x7E020000 & (0x20000 << bit)]  # CLONE_NEW*


@functools.cache
def compiled_filter(sockets: bool = False) -> bytes:
    """The filter for this machine; b"" where libseccomp is missing.

    sockets: of all families are let through, for a process without a network.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError):
        return b""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.ERRNO(errno.ENOSYS))  # calls of a 32-bit program
    for name in REFUSED:
        try:
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        except OSError:  # this machine has no such call, or this library does not know it
            continue
    rules.add_rule(
        pyseccomp.ERRNO(errno.ENOSYS), "clone3"
    )  # its flags lie in memory; the C library falls back to clone
    for flag in NEW_NAMESPACES:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    if not sockets:
        for name in ("socket", "socketpair"):
            other = pyseccomp.Arg(0, pyseccomp.NE, socket.AF_UNIX)
            rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), name, other)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
