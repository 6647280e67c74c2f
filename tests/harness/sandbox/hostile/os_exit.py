# expect: fail
# Ends the process with status 0, past every exception handler.
import os

os._exit(0)
