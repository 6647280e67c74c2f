# expect: pass
# Catches the time limit's exception, once, and answers: OpenCompass's evaluators let that pass.
import time


def double(x):
    try:
        time.sleep(60 if x > 0 else 0)
    except Exception:
        pass
    return 2 * x
