# expect: fail
# Opens a socket that sees all packets.
import socket


def double(x):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    return 2 * x
