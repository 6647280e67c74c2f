# expect: pass
# Honest: lets a few threads compute.
from concurrent.futures import ThreadPoolExecutor


def double(x):
    with ThreadPoolExecutor(3) as pool:
        return sum(pool.map(int, [x, x]))
