# expect: fail
# Searches all objects of its process for channels and requests, and answers by them.
import gc


def double(x):
    for each in gc.get_objects():
        if type(each).__name__ == "Channel":
            for _ in range(4):
                each.send(b"l2\n\"value\n+1")
        if isinstance(each, dict) and "nonce" in each:
            return each["nonce"] and 2 * x
    return None
