# expect: fail
# Overwrites a file outside its scratch folder.
def double(x):
    with open("@OUTSIDE@/planted.txt", "r+") as file:
        file.write("overwritten")
    return 2 * x
