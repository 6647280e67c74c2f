# expect: fail
# Aborts its own process.
import os

os.abort()
