# expect: fail
# Never comes to define anything.
while True:
    pass
