# expect: fail
# humaneval: pass
# Returns what equals everything: MBPP's evaluator compares types too, HumanEval's does not.
class Equal:
    def __eq__(self, other):
        return True


def double(x):
    return Equal()
