# expect: fail
# Makes a file outside its scratch folder.
def double(x):
    with open("@OUTSIDE@/new.txt", "w") as file:
        file.write("new")
    return 2 * x
