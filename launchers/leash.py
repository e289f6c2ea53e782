"""Loaded by the fork server before all else: ties its life to its launcher's, and to nothing else.

The kernel ends it with the launcher's thread that started it; it would notice by itself only once
it has loaded everything. In a session of its own it, and what it forks, gets no Ctrl-C.
"""

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
with contextlib.suppress(PermissionError):  # It leads one already.
    os.setsid()
