# expect: fail
# Sends a packet to the network.
import socket


def double(x):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("192.0.2.1", 9))
    return 2 * x
