"""The filter of system calls, executed here as the kernel would: what it refuses, and with which error."""

import errno
import struct

import pytest

from harness.sandbox.filter import (
    ALLOW,
    ANY_BIT,
    AT_LEAST,
    EQUAL,
    FAIL,
    LOAD,
    MACHINES,
    REFUSED,
    RETURN,
    compiled_filter,
)

READ, FUTEX = (0, 63), (202, 98)
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
THREAD, NEW_USER = 0x3D0F00, 0x10000000
AF_UNIX, AF_INET, AF_VSOCK = 1, 2, 40


def returned(machine: str, number: int, argument: int = 0, architecture: int | None = None) -> int:
    """What the filter of a machine returns for a call with this first argument."""
    architecture = MACHINES[machine][1] if architecture is None else architecture
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    lines = list(struct.iter_unpack("=HBBI", compiled_filter(machine)))
    at, value = 0, 0
    while True:
        code, then, otherwise, operand = lines[at]
        if code == RETURN:
            return int(operand)
        if code == LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
        else:
            holds = {EQUAL: value == operand, AT_LEAST: value >= operand, ANY_BIT: bool(value & operand)}[code]
            at += then if holds else otherwise
        at += 1


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_named_is_refused_and_the_rest_is_not(machine: str) -> None:
    column = MACHINES[machine][0]
    refused = {numbers[column] for numbers in REFUSED.values()}
    for number in range(470):
        if number in (SOCKET[column], (53, 199)[column]):
            continue
        expected = FAIL | errno.EPERM if number in refused else ALLOW
        expected = FAIL | errno.ENOSYS if number == CLONE3[column] else expected
        assert returned(machine, number) == expected, number


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_start_but_not_in_namespaces_of_their_own(machine: str) -> None:
    number = CLONE[MACHINES[machine][0]]
    assert returned(machine, number, THREAD) == returned(machine, number, 17) == ALLOW
    assert returned(machine, number, NEW_USER | 17) == FAIL | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_the_unix_family_only(machine: str) -> None:
    number = SOCKET[MACHINES[machine][0]]
    assert returned(machine, number, AF_UNIX) == ALLOW
    assert returned(machine, number, AF_INET) == returned(machine, number, AF_VSOCK) == FAIL | errno.EAFNOSUPPORT


def test_calls_of_other_conventions_do_not_exist() -> None:
    i386, x32 = 0x40000003, 0x40000000
    assert returned("x86_64", READ[0], architecture=i386) == FAIL | errno.ENOSYS
    assert returned("x86_64", x32 | READ[0]) == FAIL | errno.ENOSYS
    assert returned("x86_64", FUTEX[0]) == ALLOW


def test_a_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    assert compiled_filter("riscv64") == b""
