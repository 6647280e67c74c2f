# expect: fail
# Reads address 0.
import ctypes

ctypes.string_at(0)
