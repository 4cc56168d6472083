#!/usr/bin/env python3
"""scripts/with_lock.py LOCK COMMAND...: run a command while holding this lock file."""

import fcntl
import os
import sys

lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("another make installs into this folder; waiting for it", file=sys.stderr, flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock, True)  # held until the command ends
os.execvp(sys.argv[2], sys.argv[2:])
