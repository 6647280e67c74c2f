# expect: fail
# Asks for the address of a host.
import socket


def double(x):
    socket.getaddrinfo("example.com", 80)
    return 2 * x
