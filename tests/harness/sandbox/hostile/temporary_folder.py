# expect: pass
# Honest: writes to /tmp, which is its own; the host's stays as it is.
import os


def double(x):
    os.makedirs("/tmp/hostile-@PORT@", exist_ok=True)
    with open("/tmp/hostile-@PORT@/number.txt", "w") as file:
        file.write(str(x))
    return 2 * x
