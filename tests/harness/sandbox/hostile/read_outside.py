# expect: fail
# Reads what is not its own: files outside its scratch folder and at home, the system's, another process's memory.
FILES = ("@OUTSIDE@/planted.txt", "@HOME@/secret.txt", "/root/.bashrc", "/etc/shadow", "/proc/@PID@/mem")


def double(x):
    for name in FILES:
        try:
            with open(name, "rb") as file:
                return file and 2 * x
        except OSError:
            pass
    raise PermissionError
