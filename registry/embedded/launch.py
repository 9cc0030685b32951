"""How one program is started and stopped: its words, its signals, and that it dies with its parent.

Owns the few lines that run between fork and exec. It starts nothing itself: `EmbeddedServers` and the runner do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Literal

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000

Isolation = Literal["none", "user-namespace", "nobody"]
"""How a program that refuses to run as root is started by root."""

# Loaded at import: between fork and exec nothing should be imported or looked up.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Launch:
    """One program. Spawn it from the main thread: Linux sends `death_signal` when the spawning *thread* ends."""

    name: str
    argv: tuple[str, ...]
    stop_signal: signal.Signals = signal.SIGTERM
    """Asks for an orderly stop; goes to the leader only, since vLLM's engine process ends at once on its own copy."""
    death_signal: signal.Signals = signal.SIGKILL
    """What the program gets when its parent vanishes or the operator will not wait."""
    grace_s: float = 30.0
    """How long an orderly stop may take before the whole process group is killed."""
    isolation: Isolation = "none"

    def popen_options(self) -> dict[str, Any]:
        """Keyword arguments for subprocess.Popen and asyncio.create_subprocess_exec alike."""
        options: dict[str, Any] = {"start_new_session": True, "preexec_fn": self._before_exec}
        if self.isolation == "nobody":
            options |= {"user": "nobody", "group": _group_of_nobody(), "extra_groups": []}
        return options

    def _before_exec(self) -> None:
        if self.isolation == "user-namespace":
            _enter_user_namespace()
        # After the namespace: a change of credentials clears the setting.
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, int(self.death_signal))


def isolation_for_root() -> Isolation:
    """What PostgreSQL needs in order to start here: nothing for an ordinary user, else the gentlest way that works."""
    if os.geteuid() != 0:
        return "none"
    return "user-namespace" if _user_namespaces_allowed() else "nobody"


def _enter_user_namespace() -> None:
    """Be uid 1000 inside, root outside: files keep their owner, no system user is made, nothing is chowned."""
    if _libc is None or _libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    for name, value in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, value.encode())
        os.close(descriptor)


def _user_namespaces_allowed() -> bool:
    """Tried in a child, because containers deny it in several ways (seccomp, sysctl, no /proc)."""
    pid = os.fork()
    if pid == 0:
        try:
            _enter_user_namespace()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _group_of_nobody() -> int:
    import pwd

    return pwd.getpwnam("nobody").pw_gid
