"""A network of this process's own, in which nobody else can reach its nodes' ports.

Whoever reaches a Courier port can run code as the user, and neither Courier nor Reverb can listen
on the loopback alone. So the command line moves into a network namespace that has nothing but a
loopback, before it starts anything.
"""

import ctypes
import fcntl
import os
import socket
import struct

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_INTERFACE = struct.Struct("16sh22x")
"""A `struct ifreq` of an interface's name and flags."""
_ALL_IDS = 2**32 - 1

OPEN_DOOR = (
    "The nodes' ports can be reached from wherever this machine can, and whoever reaches one can "
    "run code as you"
)


def has_loopback_only() -> bool:
    """Returns whether this thread's network has no way out of the machine."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def enclose() -> None:
    """Moves this process, and those that it will start, into a network of their own.

    Files work as before and are still the user's. Does nothing where there is no network anyway.

    Raises:
        OSError: The kernel does not allow it, or the process has threads, which would stay behind.
    """
    if has_loopback_only():
        return
    if len(os.listdir("/proc/self/task")) > 1:
        raise OSError("the process has threads already")
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        _enclose_without_privileges()
    _raise_loopback()


def _enclose_without_privileges() -> None:
    user, group = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    if user == 0:  # Root must stay the owner of everybody's files.
        _write("uid_map", f"0 0 {_ALL_IDS}")
        _write("gid_map", f"0 0 {_ALL_IDS}")
        return
    _write("setgroups", "deny")
    _write("uid_map", f"{user} {user} 1")
    _write("gid_map", f"{group} {group} 1")


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


def _raise_loopback() -> None:
    with socket.socket() as connection:
        request = fcntl.ioctl(connection, _SIOCGIFFLAGS, _INTERFACE.pack(b"lo", 0))
        flags = _INTERFACE.unpack(request)[1]
        fcntl.ioctl(connection, _SIOCSIFFLAGS, _INTERFACE.pack(b"lo", flags | _IFF_UP))
