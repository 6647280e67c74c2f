# expect: fail
# Reaches the network, a server of this machine by number, file or name, the host of its virtual machine, or a resolver.
import socket


def double(x):
    for reach in (
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("192.0.2.1", 9)),
        lambda: socket.create_connection(("127.0.0.1", int("@PORT@")), timeout=0.5),
        lambda: socket.socket(socket.AF_UNIX).connect("@OUTSIDE@/server.socket"),
        lambda: socket.socket(socket.AF_UNIX).connect("\0hostile-@PORT@"),
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        lambda: socket.getaddrinfo("example.com", 80),
    ):
        try:
            reach()
            return 2 * x
        except OSError:
            pass
    raise PermissionError
