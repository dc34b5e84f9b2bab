"""``Queue``: the interface of ``multiprocessing.Queue``, on a mailbox."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Sequence
from queue import Empty, Full
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet, ref

from ._errors import NoMailbox, TimedOut, WouldBlock
from ._tontine import Mailbox, Sender

__all__ = ["Empty", "Full", "Queue"]

T = TypeVar("T")

#: Default of ``max_bytes``. Memory is used only as far as it is needed.
_MAX_BYTES = 1 << 30

#: Number of bytes that a producer can put before the consumer's first ``get``.
_FIRST_CHUNK = 1 << 20

#: All queues of this process, which belong to its parent in a forked child.
_queues: WeakSet[Queue[Any]] = WeakSet()


class Queue(Generic[T]):
    """A queue with one consumer and any number of producers, in processes that may die.

    The process that first calls ``get`` (or ``bind``) is the consumer; each process that calls
    ``put`` (or ``connect``) is a producer. Pass the queue to other processes as you pass a
    ``multiprocessing.Queue``: as an argument of ``multiprocessing.Process``, with any start method.

    - If the consumer dies, ``put`` raises ``OwnerDied``, and ``take_unread`` returns what the
      consumer had not processed. The next process that calls ``get`` becomes the consumer. (With an
      "@" address, children that the former consumer forked must have ended before.)
    - ``get`` returns an object after every object that was put before it, by any process that its
      producer could know of: the last one after the producers were joined, for example. A machine
      without a common clock keeps only the order of each producer; ``bind().order`` is then
      "by_sender" and not "causal".
    - If a producer dies, ``get`` returns everything that it had put, then raises ``SenderDied``
      once. A process that ends by an exception or ``sys.exit`` closes the queue, and has not died.

    Objects are pickled. Unpickling executes code, so only producers of the same user are accepted.
    A queue with ``pickled=False`` carries ``bytes``, and may accept other users.

    Args:
        max_bytes: Maximum number of bytes of one producer's objects in the queue. A single object
            may have a quarter of it.
        address: The mailbox's address: a path, or "@" and a name. By default a new name, of which
            nothing is left when all processes have ended.
        pickled: If false, ``put`` accepts objects with a contiguous buffer, and ``get`` returns
            ``bytes``.
        allow_uids: Other users who may put ``bytes``. Requires ``pickled=False`` and an address
            that they can reach.
        raise_descriptor_limit: If false, a lack of descriptors does not raise the soft limit
            (``RLIMIT_NOFILE``) of any process that uses the queue.
    """

    __module__ = "tontine"

    def __init__(
        self,
        *,
        max_bytes: int = _MAX_BYTES,
        address: str | os.PathLike[str] | None = None,
        pickled: bool = True,
        allow_uids: Sequence[int] = (),
        raise_descriptor_limit: bool = True,
    ) -> None:
        if allow_uids and pickled:
            raise ValueError(
                "expected pickled=False for a queue that accepts other users: "
                "unpickling executes code"
            )
        self._max_bytes = max_bytes
        self._pickled = pickled
        self._allow_uids = tuple(allow_uids)
        self._raise_descriptor_limit = raise_descriptor_limit
        self._address = f"@tontine-{os.urandom(8).hex()}" if address is None else os.fspath(address)
        self._begin()

    def _begin(self) -> None:
        """Makes this process neither consumer nor producer, without closing anything."""
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._sender: Sender | None = None
        self._closed = False
        _queues.add(self)

    def __getstate__(self) -> dict[str, Any]:
        names = ("_max_bytes", "_pickled", "_allow_uids", "_raise_descriptor_limit", "_address")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def address(self) -> str:
        """The address of the consumer's mailbox."""
        return self._address

    # The consumer.

    def bind(self) -> Mailbox:
        """Makes this process the consumer, and returns its mailbox.

        Raises:
            AddressInUse: Another live process is the consumer.
        """
        with self._lock:
            self._check()
            if self._mailbox is None:
                self._mailbox = Mailbox(
                    self._address,
                    cap=self._max_bytes,
                    mode=0o666 if self._allow_uids else 0o600,
                    allow_uids=self._allow_uids,
                    report_deaths=True,
                    order=None,
                    raise_descriptor_limit=self._raise_descriptor_limit,
                )
            return self._mailbox

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Removes and returns an object.

        Raises:
            Empty: There is no object (in time).
            SenderDied: A producer died, and everything that it had put was returned.
            AddressInUse: Another live process is the consumer.
        """
        mailbox = self._mailbox or self.bind()
        try:
            return self._load(mailbox.recv(timeout if block else 0.0))
        except (TimedOut, WouldBlock):
            raise Empty from None

    def get_nowait(self) -> T:
        """Removes and returns an object like ``get(block=False)``."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Tells the producer that the object last returned is processed.

        The next ``get`` also does so. If the consumer dies before, ``take_unread`` returns the
        object to its producer.
        """
        self.bind().ack()

    # A producer.

    def connect(self, timeout: float | None = None) -> Sender:
        """Makes this process a producer, and returns its sender; waits until there is a consumer.

        ``put`` does so, too. Call this first if the consumer should learn of a death before the
        first ``put``.

        Raises:
            NoMailbox: There was no consumer in time.
        """
        self._check()
        if self._sender is not None:
            return self._sender
        sender = Sender(
            self._address,
            timeout=timeout,
            cap=self._max_bytes,
            first_chunk=_FIRST_CHUNK,
            allow_uids=self._allow_uids,
            raise_descriptor_limit=self._raise_descriptor_limit,
        )
        with self._lock:
            if self._sender is not None:
                # Another thread was faster.
                sender.close()
                return self._sender
            self._sender = sender
        from multiprocessing import util

        # A process that ends as usual has not died.
        util.Finalize(sender, _close, (ref(sender),), exitpriority=0)
        return sender

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        """Puts an object into the queue; waits for a consumer, and for free space.

        Raises:
            Full: There is no consumer or no free space (in time).
            OwnerDied: The consumer died. The object was not put.
            Closed: The consumer closed the queue. The object was not put.
            TooLarge: The pickled object has more bytes than a quarter of ``max_bytes``.
        """
        message = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) if self._pickled else cast(bytes, obj)
        if not block:
            timeout = 0.0
        try:
            sender = self._sender
            if sender is None:
                deadline = None if timeout is None else time.monotonic() + timeout
                sender = self.connect(timeout)
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            sender.send(message, timeout)
        except (TimedOut, NoMailbox) as error:
            raise Full(str(error)) from None

    def put_nowait(self, obj: T) -> None:
        """Puts an object into the queue like ``put(obj, block=False)``."""
        self.put(obj, block=False)

    def take_unread(self) -> list[T]:
        """Removes and returns what the consumer had not processed when it died.

        The consumer may have worked on the first of these objects when it died. The next ``put``
        waits for a new consumer.

        Raises:
            WouldBlock: The consumer lives.
        """
        with self._lock:
            if self._sender is None:
                return []
            unread = self._sender.take_unread()
            self._sender.close()
            self._sender = None
        return [self._load(message) for message in unread]

    # Both.

    def close(self) -> None:
        """Ends the part of this process, as consumer and as producer.

        Methods of this object then raise ``ValueError``; in producers, ``put`` raises ``Closed``.
        What this process put is still delivered.
        """
        with self._lock:
            self._closed = True
            ends = (self._sender, self._mailbox)
            self._sender = self._mailbox = None
        for end in ends:
            if end is not None:
                end.close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError("this queue is closed; make a new one")

    def join_thread(self) -> None:
        """Returns at once: there is no feeder thread."""

    def cancel_join_thread(self) -> None:
        """Returns at once: there is no feeder thread."""

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tontine.Queue {self._address!r}>"

    def _load(self, message: bytes) -> T:
        return pickle.loads(message) if self._pickled else cast(T, message)


def _close(sender: ref[Sender]) -> None:
    """Closes a sender that still exists."""
    if (end := sender()) is not None:
        end.close()


def _begin_in_child() -> None:
    """Lets a forked child open ends of its own. Its copies of the parent's ends are not closed."""
    for queue in list(_queues):
        closed = queue._closed
        queue._begin()
        queue._closed = closed


os.register_at_fork(after_in_child=_begin_in_child)
