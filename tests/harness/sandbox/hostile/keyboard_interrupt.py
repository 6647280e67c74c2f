# expect: fail
# Raises what Ctrl-C raises.
def double(x):
    raise KeyboardInterrupt
