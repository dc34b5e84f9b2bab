"""The exceptions of the package. Each is an ``OSError`` with ``errno``."""

from __future__ import annotations

import signal
from typing import Any


class Error(OSError):
    """Base class of the package's exceptions."""

    __module__ = "tontine"

    #: The process that the exception names, if it is known.
    pid: int | None = None


class OwnerDied(Error):
    """The process that owned the mailbox died; ``pid`` is its process id."""

    __module__ = "tontine"


class SenderDied(Error):
    """A sender's process died before it closed the sender; ``pid`` is its process id."""

    __module__ = "tontine"


class Closed(Error, BrokenPipeError):
    """The receiver closed the mailbox."""

    __module__ = "tontine"


class WouldBlock(Error, BlockingIOError):
    """There is no message, or no free space, now."""

    __module__ = "tontine"


class TimedOut(Error, TimeoutError):
    """There was no message, or no free space, in time."""

    __module__ = "tontine"


class TooLarge(Error):
    """The message is longer than the cap of either end allows."""

    __module__ = "tontine"


class Forked(Error):
    """The object belongs to the parent of this process: open another one here."""

    __module__ = "tontine"


class AddressInUse(Error):
    """A live process owns the address; ``pid`` is its process id, if it is known."""

    __module__ = "tontine"


class NoSenders(Error):
    """No sender is left, and everything that they had sent was received."""

    __module__ = "tontine"


class NoMailbox(Error, ConnectionRefusedError):
    """No process owns the address."""

    __module__ = "tontine"


class Denied(Error, PermissionError):
    """The other end's user is not allowed here, or this user is not allowed there."""

    __module__ = "tontine"


class WorkerDied(RuntimeError):
    """The worker of a task died, as did the workers of its repetitions.

    Attributes:
        function: The function that the task called.
        argument: Its argument; a tuple of the positional arguments if there are several or none, or
            if there are keyword arguments.
        exitcode: The exit code of the last worker, or minus the number of the signal that ended it;
            ``None`` if another part of the program has waited for that process.
        signal: The signal that ended the last worker, or ``None``; a plain number if Python has no
            name for it.
        oom: ``True`` if the kernel killed the last worker because its memory cgroup was full;
            ``None`` if that is not known.
    """

    __module__ = "tontine"

    def __init__(
        self,
        text: str,
        function: Any = None,
        argument: Any = None,
        exitcode: int | None = None,
        oom: bool | None = None,
    ) -> None:
        super().__init__(text, function, argument, exitcode, oom)
        self.function, self.argument = function, argument
        self.exitcode, self.oom = exitcode, oom
        self.signal = None if exitcode is None or exitcode >= 0 else _signal(-exitcode)

    def __str__(self) -> str:
        return str(self.args[0])


def _signal(number: int) -> int:
    try:
        return signal.Signals(number)
    except ValueError:
        # Most real-time signals have no name.
        return number
