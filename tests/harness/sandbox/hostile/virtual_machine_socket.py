# expect: fail
# Opens a socket to the host of its virtual machine.
import socket


def double(x):
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    return 2 * x
