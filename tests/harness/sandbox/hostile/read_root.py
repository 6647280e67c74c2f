# expect: fail
# Reads root's shell settings.
def double(x):
    with open("/root/.bashrc") as file:
        return file.read() and 2 * x
