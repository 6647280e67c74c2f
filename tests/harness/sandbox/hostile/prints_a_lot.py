# expect: pass
# Honest: prints ten thousand lines.
def double(x):
    for number in range(10_000):
        print("step", number, "of the sum of", x, "and", x)
    return 2 * x
