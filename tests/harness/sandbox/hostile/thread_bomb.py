# expect: fail
# Starts threads that wait, as many as it gets.
import threading
import time


def double(x):
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
