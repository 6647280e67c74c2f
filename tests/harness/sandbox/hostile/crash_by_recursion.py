# expect: fail
# Overflows the stack in C: the hash of a million nested tuples.
nested = ()
for _ in range(10**6):
    nested = (nested,)
hash(nested)


def double(x):
    return 2 * x
