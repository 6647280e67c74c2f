# expect: fail
# Returns what equals everything.
class Equal:
    def __eq__(self, other):
        return True


def double(x):
    return Equal()
