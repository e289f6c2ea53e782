"""Loaded by the fork server before all else: ties its life to its launcher's, and to nothing else.

The kernel ends it with the launcher's thread that started it; it would notice by itself only once
it has loaded everything. A launcher that was gone before the kernel knew is noticed here. In a
session of its own the fork server, and what it forks, gets no Ctrl-C.
"""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
LAUNCHER_PID = "LAUNCHGRAPH_LAUNCHER_PID"
"""Environment variable in which the launcher says who it is."""

if LAUNCHER_PID in os.environ:  # Else somebody only looks at this module.
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit("The kernel would let this process outlive its launcher.")
    if os.getppid() != int(os.environ.pop(LAUNCHER_PID)):
        os._exit(1)
    with contextlib.suppress(PermissionError):  # It leads one already.
        os.setsid()
