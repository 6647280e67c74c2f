# expect: fail
# Spends its time in C, where no signal handler of Python's runs.
def double(x):
    return sum(range(10**14)) and 2 * x
