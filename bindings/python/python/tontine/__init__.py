"""Messages between processes that survive each other's deaths.

- ``Queue`` has the interface of ``multiprocessing.Queue``, and never hangs because a process was
  killed.
- ``Executor`` and ``Pool`` have the interfaces of ``ProcessPoolExecutor`` and
  ``multiprocessing.Pool``, and repeat the tasks of workers that die.
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
    NoSenders,
    OwnerDied,
    SenderDied,
    TimedOut,
    TooLarge,
    WorkerDied,
    WouldBlock,
)
from ._queue import Empty, Full, Queue
from ._tontine import Mailbox, MessageView, Sender, __version__


if TYPE_CHECKING:
    from ._asyncio import AsyncQueue
    from ._executor import Executor
    from ._pool import AsyncResult, Pool, ResultIterator
    from ._work_queue import WorkQueue

__all__ = [
    "AddressInUse",
    "AsyncQueue",
    "AsyncResult",
    "Closed",
    "Denied",
    "Empty",
    "Error",
    "Executor",
    "Forked",
    "Full",
    "Mailbox",
    "MessageView",
    "NoMailbox",
    "NoSenders",
    "OwnerDied",
    "Pool",
    "Queue",
    "ResultIterator",
    "Sender",
    "SenderDied",
    "TimedOut",
    "TooLarge",
    "WorkQueue",
    "WorkerDied",
    "WouldBlock",
    "__version__",
]


_MODULES = {
    "AsyncQueue": "._asyncio",
    "AsyncResult": "._pool",
    "Executor": "._executor",
    "Pool": "._pool",
    "ResultIterator": "._pool",
    "WorkQueue": "._work_queue",
}


def __getattr__(name: str) -> Any:
    """Imports what uses ``multiprocessing`` or ``asyncio`` at its first use: that takes longest."""
    module = _MODULES.get(name)
    if module is not None:
        from importlib import import_module

        return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
