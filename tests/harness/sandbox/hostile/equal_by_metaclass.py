# expect: fail
# Returns a class, whose equality is its metaclass's, and lies about its own class.
class Meta(type):
    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__

    @property
    def __class__(cls):
        return int


class Equal(metaclass=Meta):
    pass


def double(x):
    return Equal
