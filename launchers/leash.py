"""Loaded by the fork server before all else: the kernel ends it with the launcher's thread.

The fork server itself would notice that its launcher is gone only once it has loaded everything.
"""

import ctypes
import signal

PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
