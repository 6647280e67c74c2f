# expect: fail
# Ends the interpreter from inside a test.
def double(x):
    raise SystemExit(0)
