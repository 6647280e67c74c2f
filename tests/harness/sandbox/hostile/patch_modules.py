# expect: fail
# Replaces what the process that runs it might use to report, and answers wrongly.
import json
import os
import sys

json.dumps = lambda *arguments, **named: '{"kind": "pass"}'
os.write = lambda *arguments: 0
sys.exit = os._exit


def double(x):
    return None
