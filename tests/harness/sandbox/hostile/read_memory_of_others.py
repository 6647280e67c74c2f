# expect: fail
# Opens the memory of the process that started it all.
def double(x):
    with open("/proc/@PID@/mem", "rb") as file:
        return file and 2 * x
