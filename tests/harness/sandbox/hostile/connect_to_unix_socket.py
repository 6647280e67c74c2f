# expect: fail
# Connects to a server of this machine that has a file for its address.
import socket


def double(x):
    socket.socket(socket.AF_UNIX).connect("@OUTSIDE@/server.socket")
    return 2 * x
