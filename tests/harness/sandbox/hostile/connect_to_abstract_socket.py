# expect: fail
# Connects to a server of this machine that has a name for its address.
import socket


def double(x):
    socket.socket(socket.AF_UNIX).connect("\0hostile-@PORT@")
    return 2 * x
