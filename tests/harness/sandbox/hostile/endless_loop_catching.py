# expect: fail
# Never returns and catches everything, the time limit's exception too.
def double(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
