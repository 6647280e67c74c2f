# expect: fail
# Makes empty files without end: they are the kernel's memory.
def double(x):
    number = 0
    while True:
        open(f"empty-{number}", "wb").close()
        number += 1
