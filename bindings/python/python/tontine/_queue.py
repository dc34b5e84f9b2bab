"""``Queue``: the interface of ``multiprocessing.Queue``, on a mailbox."""

from __future__ import annotations

import atexit
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pickle import dumps
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakSet, ref

from ._errors import AddressInUse, NoMailbox, NoSenders, SenderDied, TimedOut, WouldBlock
from ._pickling import LARGE, PROTOCOL, dump_large, expected, load, load_in_place
from ._tontine import Listener, Mailbox, Sender
from ._watch import Watches

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

__all__ = ["Empty", "Full", "Queue"]

T = TypeVar("T")
M = TypeVar("M")

#: Default of ``max_bytes``. Memory is used only as far as it is needed.
_MAX_BYTES = 1 << 30

#: Number of bytes that a producer can put before a consumer accepts it.
_FIRST_CHUNK = 1 << 20

#: Default of ``large_backlog``. Memory that is soon used again is in the processors' caches.
_LARGE_BACKLOG = 8 << 20

#: What every process that has the queue knows of it.
_SETTINGS = (
    "_maxsize",
    "_max_bytes",
    "_large_backlog",
    "_pickled",
    "_allow_uids",
    "_report_deaths",
    "_raise_descriptor_limit",
    "_address",
    "_is_named",
)

#: Maximum number of bytes that an object takes in parts beyond those of its pickle.
_PART_BYTES = 4096

#: All queues of this process, which belong to its parent in a forked child.
_queues: WeakSet[Queue[Any]] = WeakSet()


class Queue(Generic[T]):
    """A queue with one consumer and any number of producers, in processes that may die.

    The process that first calls ``get`` (or ``bind``) is the consumer; each process that calls
    ``put`` (or ``connect``) is a producer. Pass the queue to other processes as you pass a
    ``multiprocessing.Queue``: as an argument of ``multiprocessing.Process``, with any start method.

    - A process may put before there is a consumer: the kernel keeps up to 1 MiB of each producer,
      even of one that has ended, until a process gets, as long as any process has the queue.
    - If the consumer dies, ``put`` raises ``OwnerDied``, and ``take_unread`` returns what the
      consumer had not processed. The next process that calls ``get`` becomes the consumer.
    - ``get`` returns an object after every object that was put before it, by any process that its
      producer could know of: the last one after the producers were joined, for example. A machine
      without a common clock keeps only the order of each producer; ``bind().order`` is then
      "by_sender" and not "causal".
    - If a producer dies, ``get`` returns everything that it had put, then raises ``SenderDied``
      once. A process that ends by an exception or ``sys.exit`` closes the queue, and has not died.

    Objects are pickled. Unpickling executes code, so only producers of the same user are accepted.
    A queue with ``pickled=False`` carries ``bytes``, and may accept other users.

    Args:
        maxsize: Maximum number of one producer's objects that the consumer has not acknowledged; 0
            means no maximum. The next ``get`` and ``task_done`` acknowledge an object.
        max_bytes: Maximum number of bytes of one producer's objects in the queue. A single object
            may have a quarter of it.
        large_backlog: Maximum number of bytes of the memory in which one producer's objects of 64
            KiB and more wait, unless a single object needs more (default 8 MiB). While it is full,
            ``put`` waits.
        address: An address that unrelated programs share: a path, or "@" and a name. The process
            that first calls ``get`` then makes the address, and ``put`` waits for it. By default a
            new name, which this process makes, and of which nothing is left when all processes
            have ended.
        pickled: If false, ``put`` accepts objects with a contiguous buffer, and ``get`` returns
            ``bytes``.
        allow_uids: Other users who may put ``bytes``. Requires ``pickled=False`` and an address
            that they can reach.
        report_deaths: If false, ``get`` does not raise ``SenderDied``: for a program that cannot
            handle it, such as ``logging.handlers.QueueListener``.
        raise_descriptor_limit: If false, a lack of descriptors does not raise the soft limit
            (``RLIMIT_NOFILE``) of any process that uses the queue.
    """

    __module__ = "tontine"

    def __init__(
        self,
        maxsize: int = 0,
        *,
        max_bytes: int = _MAX_BYTES,
        large_backlog: int = _LARGE_BACKLOG,
        address: str | os.PathLike[str] | None = None,
        pickled: bool = True,
        allow_uids: Sequence[int] = (),
        report_deaths: bool = True,
        raise_descriptor_limit: bool = True,
    ) -> None:
        if allow_uids and pickled:
            raise ValueError(
                "expected pickled=False for a queue that accepts other users: "
                "unpickling executes code"
            )
        self._maxsize = max(0, maxsize)
        self._max_bytes = max_bytes
        self._large_backlog = large_backlog
        self._pickled = pickled
        self._allow_uids = tuple(allow_uids)
        self._report_deaths = report_deaths
        self._raise_descriptor_limit = raise_descriptor_limit
        self._listener: Listener | None = None
        if address is None:
            self._address = f"@tontine-{os.urandom(8).hex()}"
            self._listener = Listener(self._address)
        else:
            self._address = os.fspath(address)
        self._is_named = address is not None
        self._begin()

    def _begin(self) -> None:
        """Makes this process neither consumer nor producer, without closing anything."""
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._sender: Sender | None = None
        self._watches: Watches | None = None
        self._closed = False
        _queues.add(self)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: self.__dict__[name] for name in _SETTINGS}
        context = sys.modules.get("multiprocessing.context")
        if self._listener is not None and context and context.get_spawning_popen() is not None:
            from multiprocessing.reduction import DupFd

            state["_listener"] = DupFd(self._listener.fileno())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        passed = state.pop("_listener", None)
        self.__dict__.update(state)
        self._listener = None if passed is None else Listener(self._address, passed.detach())
        self._begin()

    @property
    def address(self) -> str:
        """The address of the consumer's mailbox."""
        return self._address

    # The consumer.

    def bind(self) -> Mailbox:
        """Makes this process the consumer, and returns its mailbox.

        Raises:
            AddressInUse: Another live process is the consumer, or this copy of the queue came
                through a pipe or another queue, and can only put.
            RuntimeError: This process imports the program of its parent again (start methods
                "spawn" and "forkserver"), which uses a queue outside of
                ``if __name__ == "__main__":``.
        """
        with self._lock:
            self._check()
            if self._mailbox is None:
                _check_main()
                try:
                    self._mailbox = self._open()
                except AddressInUse as error:
                    raise self._in_use(error) from None
            return self._mailbox

    def _open(self) -> Mailbox:
        return Mailbox(
            self._address,
            cap=self._max_bytes,
            mode=0o666 if self._allow_uids else 0o600,
            allow_uids=self._allow_uids,
            report_deaths=self._report_deaths,
            order=None,
            raise_descriptor_limit=self._raise_descriptor_limit,
            _listener=self._listener,
        )

    def _in_use(self, error: AddressInUse) -> AddressInUse:
        """Returns the error with the rule that the caller broke."""
        if self._listener is None and not self._is_named:
            text = (
                "this copy of the queue came through a pipe or another queue, and can only put: "
                "pass the queue to its consumer as an argument of Process, or make it with an "
                "address"
            )
        else:
            holder = "another process" if error.pid is None else f"process {error.pid}"
            text = (
                f"one process at a time gets from a queue, and {holder} does: give each consumer a "
                "queue of its own, or end the other consumer, or let it call close"
            )
        in_use = AddressInUse(error.errno, text)
        in_use.pid = error.pid
        return in_use

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Removes and returns an object.

        Raises:
            Empty: There is no object (in time).
            SenderDied: A producer died, or a process that this one watches ended with another exit
                code than 0; everything that it had put was returned.
            NoSenders: No watched process and no producer is left.
            AddressInUse: Another live process is the consumer.
        """
        mailbox = self._mailbox or self.bind()
        wait = timeout if block else 0.0
        if self._watches is not None:
            recv = mailbox.recv_parts if self._pickled else mailbox.recv
            message = self._recv_watching(mailbox, self._watches, wait, recv)
            return load(message) if self._pickled else cast(T, message)
        try:
            return load(mailbox.recv_parts(wait)) if self._pickled else cast(T, mailbox.recv(wait))
        except (TimedOut, WouldBlock):
            raise Empty from None

    def watch(self, process: BaseProcess | int) -> None:
        """Lets ``get`` of this process notice the end of another process.

        ``get`` raises ``SenderDied`` once, after everything that the process had put, if the
        process ends with another exit code than 0: by a signal or an exception, even before it put
        anything. Once this was called, ``get`` raises ``NoSenders`` if no watched process and no
        producer is left.

        Args:
            process: A ``multiprocessing.Process`` that was started, or a process id. The exit code
                of a process is known to its parent only: of others, only the death as a producer is
                reported.

        Raises:
            ValueError: The process was not started.
        """
        with self._lock:
            self._check()
            if self._watches is None:
                self._watches = Watches()
            self._watches.add(process)

    def _recv_watching(
        self,
        mailbox: Mailbox,
        watches: Watches,
        timeout: float | None,
        recv: Callable[[float], M],
    ) -> M:
        """Waits for a message of ``recv``, and for the end of the watched processes."""
        _check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return recv(0.0)
            except SenderDied as died:
                watches.note_death(died.pid)
                raise
            except TimedOut:
                pass
            if not mailbox.arm():
                continue
            has_live = watches.has_live()
            is_last = not has_live and mailbox.sender_count == 0
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if watches.wait(mailbox.fileno(), 0.0 if is_last else left):
                continue
            if (death := watches.next_death()) is not None and self._report_deaths:
                raise death
            if has_live and not watches.has_live():
                continue  # It may have been the last one.
            if is_last:
                text = "every producer has ended, and everything that they had put was returned"
                raise NoSenders(errno.ENOTCONN, text)
            if left == 0.0:
                raise Empty

    def _watched(self) -> list[int]:
        """Returns the descriptors of the watched processes, for an event loop."""
        return [] if self._watches is None else self._watches.descriptors()

    def get_nowait(self) -> T:
        """Removes and returns an object like ``get(block=False)``."""
        return self.get(block=False)

    @contextmanager
    def get_view(self, block: bool = True, timeout: float | None = None) -> Iterator[T]:
        """Removes an object, whose large buffers stay in place until a ``with`` statement ends.

        They are read-only, and not copied. Delete the arrays before the statement ends, or let a
        function's end do so; nothing else is received until then::

            with queue.get_view() as frame:
                total = frame.sum()
                del frame

        The end of the statement acknowledges the object. Do not fork meanwhile.

        Raises:
            BufferError: The statement has ended, and an array is still in use.
            Other exceptions: As for ``get``.
        """
        mailbox = self._mailbox or self.bind()
        wait = timeout if block else 0.0
        try:
            if self._watches is None:
                message = mailbox.recv_view(wait)
            else:
                message = self._recv_watching(mailbox, self._watches, wait, mailbox.recv_view)
        except (TimedOut, WouldBlock):
            raise Empty from None
        with message as view:
            yield load_in_place(view) if self._pickled else cast(T, view)

    def task_done(self) -> None:
        """Tells the producer that the object last returned is processed.

        The next ``get`` also does so. If the consumer dies before, ``take_unread`` returns the
        object to its producer.
        """
        self.bind().ack()

    # A producer.

    def connect(self, timeout: float | None = None) -> Sender:
        """Makes this process a producer, and returns its sender.

        ``put`` does so, too. Call this first if the consumer should learn of a death before the
        first ``put``. Waits while no process is, or becomes, the consumer: the last one has ended,
        or before the first one, the process that made the queue.

        Raises:
            NoMailbox: There was no such process in time.
        """
        _check_timeout(timeout)
        return self._connect(timeout, required=True)

    def _connect(self, timeout: float | None, required: bool) -> Sender:
        """Connects; if not ``required``, also while no process receives from the queue's socket."""
        self._check()
        if self._sender is not None:
            return self._sender
        sender = Sender(
            self._address,
            timeout=timeout if self._is_named or required else 0.0,
            cap=self._max_bytes,
            first_chunk=_FIRST_CHUNK,
            large_backlog=self._large_backlog,
            allow_uids=self._allow_uids,
            raise_descriptor_limit=self._raise_descriptor_limit,
            _listener=self._listener,
            _held=not self._is_named,
            _required=required,
            _max_unread=self._maxsize or None,
        )
        with self._lock:
            if self._sender is not None:
                # Another thread was faster.
                sender.close()
                return self._sender
            self._sender = sender
        # A process that ends as usual has not died. A child of `multiprocessing` runs its
        # finalizers only, and has imported them: an import here could wait in a forked child for a
        # lock that a thread of the parent held.
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
        if finalize is not None:
            finalize(sender, _close, (ref(sender),), exitpriority=0)
        return sender

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        """Puts an object into the queue; waits for free space.

        Raises:
            Full: There is no free space, or no consumer at the queue's address (in time).
            OwnerDied: The consumer died. The object was not put.
            NoMailbox: Every process that could get from the queue has ended.
            Closed: The consumer closed the queue. The object was not put.
            TooLarge: The pickled object has more bytes than a quarter of ``max_bytes``.
        """
        parts = None
        if not self._pickled:
            message: Any = obj
        elif expected.objects or len(message := dumps(obj, PROTOCOL)) >= LARGE:
            message, *parts = dump_large(obj)
        if not block:
            timeout = 0.0
        try:
            sender = self._sender
            if sender is None:
                _check_timeout(timeout)
                deadline = None if timeout is None else time.monotonic() + timeout
                sender = self._connect(timeout, required=False)
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if parts:
                sender.send_parts([message, *parts], timeout)
            else:
                sender.send(message, timeout)
        except (TimedOut, NoMailbox) as error:
            if isinstance(error, NoMailbox) and not self._is_named:
                raise
            raise Full(str(error)) from None

    def put_nowait(self, obj: T) -> None:
        """Puts an object into the queue like ``put(obj, block=False)``."""
        self.put(obj, block=False)

    def _max_length(self, obj: Any) -> int:
        """Returns the number of bytes that an object may take in the queue, for an event loop."""
        if not self._pickled:
            return memoryview(obj).nbytes
        return len(dumps(obj, PROTOCOL)) + _PART_BYTES

    def full(self) -> bool:
        """Returns whether ``put`` of this process would wait because of ``maxsize``."""
        sender = self._sender
        return bool(self._maxsize and sender and sender._unread_count() >= self._maxsize)

    def join(self) -> None:
        """Waits until the consumer has acknowledged everything that this process put.

        Raises:
            OwnerDied: The consumer died before.
            Closed: The consumer closed the queue before.
        """
        if (sender := self._sender) is not None:
            sender.wait_acked()

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
        if not self._pickled:
            return cast("list[T]", unread)
        return [load_in_place(memoryview(bytearray(message))) for message in unread]

    # Both.

    def qsize(self) -> int:
        """Returns the number of objects in the queue, as far as this process knows.

        In the consumer, that is every object that it has not got; in a producer, its own objects
        that the consumer has not acknowledged.

        Raises:
            NotImplementedError: This process is neither, and producers wait for a consumer.
        """
        self._check()
        end = self._mailbox or self._sender
        if end is not None:
            return end._unread_count()
        if self.empty():
            return 0
        raise NotImplementedError("only the consumer and the producers know the number of objects")

    def empty(self) -> bool:
        """Returns whether the queue is empty, as far as this process knows: see ``qsize``."""
        self._check()
        end = self._mailbox or self._sender
        if end is not None:
            return end._unread_count() == 0
        return self._listener is None or not self._listener.has_waiting()

    def close(self) -> None:
        """Ends the part of this process, as consumer and as producer.

        Methods of this object then raise ``ValueError``; in producers, ``put`` raises ``Closed``.
        What this process put is still delivered.
        """
        with self._lock:
            self._closed = True
            ends = (self._sender, self._mailbox)
            self._sender = self._mailbox = self._watches = None
        for end in (*ends, self._listener):
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


def _check_timeout(timeout: float | None) -> None:
    """Checks a timeout like the methods of ``Mailbox`` and ``Sender``."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"expected a timeout of at least 0 seconds, found {timeout}")


def _check_main() -> None:
    """Checks that the program of a parent is not being imported."""
    processes = sys.modules.get("multiprocessing.process")
    if processes and getattr(processes.current_process(), "_inheriting", False):
        raise RuntimeError(
            "this process imports the program of its parent again, as the start methods spawn and "
            "forkserver do: put what starts processes or gets from a queue under "
            '`if __name__ == "__main__":`'
        )


def _close(sender: ref[Sender]) -> None:
    """Closes a sender that still exists."""
    if (end := sender()) is not None:
        end.close()


def _close_senders() -> None:
    """Closes the senders of a process that ends as usual."""
    for queue in list(_queues):
        if (sender := queue._sender) is not None:
            sender.close()


def _begin_in_child() -> None:
    """Lets a forked child open ends of its own. Its copies of the parent's ends are not closed."""
    for queue in list(_queues):
        closed = queue._closed
        queue._begin()
        queue._closed = closed


atexit.register(_close_senders)
os.register_at_fork(after_in_child=_begin_in_child)
