# expect: fail
# Ends the process from a thread while a test waits.
import os
import threading
import time


def double(x):
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(0.5)
    return 2 * x
