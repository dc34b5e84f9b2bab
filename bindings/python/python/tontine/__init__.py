"""Messages between processes that survive each other's deaths.

- ``Queue`` has the interface of ``multiprocessing.Queue``, and never hangs because a process was
  killed. ``Pool`` replaces workers that die.
- ``Mailbox`` and ``Sender`` carry ``bytes`` between any processes, also written in Rust or C.
"""

from typing import TYPE_CHECKING, Any

from ._errors import (
    AddressInUse,
    Closed,
    Denied,
    Error,
    Forked,
    NoMailbox,
    OwnerDied,
    SenderDied,
    TimedOut,
    TooLarge,
    WouldBlock,
)
from ._queue import Empty, Full, Queue
from ._tontine import Mailbox, MessageView, Sender, __version__

if TYPE_CHECKING:
    from ._pool import Pool, WorkerDied

__all__ = [
    "AddressInUse",
    "Closed",
    "Denied",
    "Empty",
    "Error",
    "Forked",
    "Full",
    "Mailbox",
    "MessageView",
    "NoMailbox",
    "OwnerDied",
    "Pool",
    "Queue",
    "Sender",
    "SenderDied",
    "TimedOut",
    "TooLarge",
    "WorkerDied",
    "WouldBlock",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Imports the pool at its first use: ``multiprocessing`` takes longer than all the rest."""
    if name in ("Pool", "WorkerDied"):
        from . import _pool

        return getattr(_pool, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
