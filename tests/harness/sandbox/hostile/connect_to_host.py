# expect: fail
# Connects to a server of this machine.
import socket


def double(x):
    socket.create_connection(("127.0.0.1", int("@PORT@")), timeout=0.5)
    return 2 * x
