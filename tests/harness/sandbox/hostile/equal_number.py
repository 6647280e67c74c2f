# expect: fail
# Returns a number that equals every other.
class Equal(float):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = float.__hash__


def double(x):
    return Equal(0)
