# expect: fail
# Ends the interpreter while it is being defined.
import sys

sys.exit(0)
