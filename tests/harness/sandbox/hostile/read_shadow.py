# expect: fail
# Reads the password hashes.
def double(x):
    with open("/etc/shadow") as file:
        return file.read() and 2 * x
