"""``WorkQueue``: a queue with several consumers."""

from __future__ import annotations

import atexit
import math
import os
import select
import sys
import threading
import time
from collections import deque
from multiprocessing import util
from queue import Empty, Full
from typing import Any, Generic, TypeVar
from weakref import WeakSet, ref

from ._errors import Closed, Error, NoMailbox, OwnerDied, SenderDied, TimedOut, WouldBlock
from ._pickling import dump, load
from ._tontine import Held, Holding, Mailbox, Sender

T = TypeVar("T")

#: Default of ``max_bytes``. Memory is used only as far as it is needed.
_MAX_BYTES = 1 << 30

#: Number of bytes that a process can send before the other end has accepted it.
_FIRST_CHUNK = 1 << 20

#: Maximum number of seconds to wait for a lock.
_MAX_WAIT = threading.TIMEOUT_MAX

#: Milliseconds after which an object is sent again for which there was no space.
_TICK = 2

#: What a consumer tells the dealer, behind its own number of 8 bytes.
_JOIN, _WANT, _CANCEL, _DONE, _LEAVE = b"j", b"w", b"c", b"d", b"l"

#: All queues of this process, which belong to its parent in a forked child.
_queues: WeakSet[WorkQueue[Any]] = WeakSet()


class WorkQueue(Generic[T]):
    """A queue with any number of producers and consumers, in processes that may die.

    Each object goes to one consumer, which wants one. If a consumer dies, the object that it had
    not finished goes to another one: so a consumer may get an object on which another has begun to
    work. A consumer finishes an object with its next ``get``, with ``task_done`` or ``close``.

    The process that makes the queue deals the objects out, in a thread: they are lost with it only
    if their producers end too, because ``take_unread`` returns them. Pass the queue to other
    processes as an argument of ``multiprocessing.Process``, through a pipe or another queue. Only
    processes of the same user are accepted, since unpickling executes code.

    Until a consumer wants an object, each producer can put 1 MiB.

    Args:
        max_bytes: Maximum number of bytes of one producer's objects in the queue. A single object
            may have a quarter of it.
    """

    __module__ = "tontine"

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._address = f"@tontine-{os.urandom(8).hex()}"
        self._dealer: _Dealer | None = None
        self._begin()
        self._dealer = _Dealer(self._address, max_bytes)
        # When nothing uses the queue here, or at the end of this process, after its children were
        # joined, which may still get.
        self._finalizer = util.Finalize(self, _Dealer.close, (self._dealer,), exitpriority=-1)

    def _begin(self) -> None:
        """Makes this process neither consumer nor producer, without closing anything."""
        self._dealer = None
        self._lock = threading.Lock()
        self._sender: Sender | None = None
        self._consumer: _Consumer | None = None
        self._closed = False
        _queues.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"_max_bytes": self._max_bytes, "_address": self._address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    # Consumers.

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Removes and returns an object, and finishes the one before.

        Raises:
            Empty: There is no object (in time).
            OwnerDied: The process that made the queue died.
            Closed: That process closed the queue.
        """
        wait = timeout if block else 0.0
        if wait is not None and not wait >= 0:
            raise ValueError(f"expected a timeout of at least 0 seconds, found {wait}")
        deadline = None if wait is None else time.monotonic() + wait
        consumer = self._join()
        if not consumer.lock.acquire(timeout=-1 if wait is None else min(wait, _MAX_WAIT)):
            raise Empty
        try:
            message = consumer.get(deadline)
        finally:
            consumer.lock.release()
        object_: T = load(message)
        return object_

    def get_nowait(self) -> T:
        """Removes and returns an object like ``get(block=False)``."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Finishes the object last returned, so that it goes to no other consumer.

        Waits while another thread of this process waits for an object.
        """
        consumer = self._join()
        with consumer.lock:
            consumer.finish()

    def _join(self) -> _Consumer:
        if self._consumer is None:
            with self._lock:
                self._check()
                if self._consumer is None:
                    try:
                        self._consumer = _Consumer(self._address, self._max_bytes)
                    except NoMailbox as error:
                        raise _ended(error) from None
                    _close_at_end(self)
        return self._consumer

    # Producers.

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        """Puts an object into the queue; waits for free space.

        Raises:
            Full: There is no free space (in time).
            OwnerDied: The process that made the queue died. The object was not put.
            Closed: That process closed the queue. The object was not put.
            TooLarge: The pickled object has more bytes than a quarter of ``max_bytes``.
        """
        message = dump(obj)
        sender = self._connect()
        try:
            if isinstance(message, list):
                sender.send_parts(message, timeout if block else 0.0)
            else:
                sender.send(message, timeout if block else 0.0)
        except TimedOut as error:
            raise Full(str(error)) from None

    def put_nowait(self, obj: T) -> None:
        """Puts an object into the queue like ``put(obj, block=False)``."""
        self.put(obj, block=False)

    def join(self, timeout: float | None = None) -> None:
        """Waits until consumers have finished everything that this process put.

        Raises:
            TimedOut: They have not, in time.
            OwnerDied, Closed: The process that made the queue has ended, or closed it.
        """
        if self._sender is not None:
            self._sender.wait_acked(timeout)

    def take_unread(self) -> list[T]:
        """Removes and returns what this process put and no consumer had finished when the process
        that made the queue ended.

        Raises:
            WouldBlock: That process lives.
        """
        if self._sender is None:
            return []
        return [load_copy(message) for message in self._sender.take_unread()]

    def _connect(self) -> Sender:
        if self._sender is None:
            with self._lock:
                self._check()
                if self._sender is None:
                    try:
                        self._sender = Sender(
                            self._address, cap=self._max_bytes, first_chunk=_FIRST_CHUNK
                        )
                    except NoMailbox as error:
                        raise _ended(error) from None
                    _close_at_end(self)
        return self._sender

    # All.

    def close(self) -> None:
        """Ends the part of this process, as consumer, as producer, and as dealer if it made the
        queue.

        Methods of this object then raise ``ValueError``.
        """
        with self._lock:
            self._closed = True
            dealer, self._dealer = self._dealer, None
        self._close_ends()
        if dealer is not None:
            self._finalizer()

    def _close_ends(self) -> None:
        """Ends the part of this process as consumer and producer."""
        with self._lock:
            consumer, sender = self._consumer, self._sender
            self._consumer = self._sender = None
        if consumer is not None:
            consumer.close()
        if sender is not None:
            sender.close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError("this queue is closed; make a new one")

    def __enter__(self) -> WorkQueue[T]:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tontine.WorkQueue {self._address!r}>"


def load_copy(message: bytes) -> Any:
    """Returns the object of a message that was taken back."""
    from ._pickling import load_in_place

    return load_in_place(memoryview(bytearray(message)))


def _ended(error: NoMailbox) -> OwnerDied:
    text = "the process that made the queue has ended"
    return OwnerDied(error.errno, text)


class _Consumer:
    """The part of a process that gets from a queue."""

    def __init__(self, address: str, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self._name = os.urandom(8)
        own = f"{address}-{self._name.hex()}"
        self._dealer = Sender(f"{address}-consumers")
        self._mailbox = Mailbox(own, cap=max_bytes, report_no_senders=True)
        #: Whether an object was returned and not finished, and whether one was asked for.
        self._is_working = self._has_asked = False
        self._tell(_JOIN + own.encode())

    def _tell(self, what: bytes) -> None:
        self._dealer.send(self._name + what)

    def get(self, deadline: float | None) -> Any:
        """Returns the next message."""
        self.finish()
        if not self._has_asked:
            self._tell(_WANT)
            self._has_asked = True
        is_cancelled = False
        while True:
            try:
                message = self._mailbox.recv_parts(0.0)
            except (TimedOut, WouldBlock):
                pass
            except Error:
                # The dealer has ended; this raises how.
                self._dealer.service()
                raise
            else:
                self._has_asked = False
                # The dealer replies to a cancelled request, too.
                if message == b"":
                    raise Empty
                self._is_working = True
                return message
            left = None if deadline is None or is_cancelled else deadline - time.monotonic()
            if left is not None and left <= 0:
                is_cancelled = True
                self._tell(_CANCEL)
                continue
            if self._mailbox.arm():
                self._dealer.service()
                poll = select.poll()
                for end in (self._mailbox, self._dealer):
                    poll.register(end.fileno(), select.POLLIN)
                poll.poll(None if left is None else math.ceil(left * 1000))

    def finish(self) -> None:
        """Finishes the object last returned."""
        if self._is_working:
            self._mailbox.ack()
            self._tell(_DONE)
            self._is_working = False

    def close(self) -> None:
        try:
            self.finish()
            self._tell(_LEAVE)
        except (OwnerDied, Closed, ValueError):
            pass
        self._dealer.close()
        self._mailbox.close()


class _Member:
    """A consumer, as the dealer knows it."""

    def __init__(self, address: str) -> None:
        self.address = address
        #: ``None`` until the dealer has connected to it.
        self.sender: Sender | None = None
        #: Whether it wants an object, and whether it waits for an answer without one.
        self.wants = self.gives_up = False
        #: Objects that it has not finished.
        self.held: deque[Held] = deque()


class _Dealer:
    """Deals objects out to the consumers that want one, in a thread."""

    def __init__(self, address: str, max_bytes: int) -> None:
        self._objects = Holding(address, max_bytes)
        self._requests = Mailbox(f"{address}-consumers", report_deaths=True)
        self._max_bytes = max_bytes
        self._members: dict[bytes, _Member] = {}
        self._returned: deque[Held] = deque()
        #: Whether a consumer could not be reached for now.
        self._is_stalled = False
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._pid = os.getpid()
        #: Guards the writer. The collector may call ``close`` in any allocation: RLock.
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="tontine-dealer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. Producers can take back what is not finished."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._writer >= 0:
                os.write(self._writer, b"!")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._deal_until_closed()
        finally:
            for member in self._members.values():
                if member.sender is not None:
                    member.sender.close()
            self._members.clear()
            self._objects.close()
            self._requests.close()
            with self._lock:
                os.close(self._reader)
                os.close(self._writer)
                self._writer = -1

    def _deal_until_closed(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._requests.fileno(), select.POLLIN)
        while not poll_now(self._reader):
            self._is_stalled = False
            self._take_requests()
            if self._deal():
                continue
            wanted = any(member.wants for member in self._members.values())
            wanted = wanted and not self._is_stalled
            if wanted and not self._objects.arm() or not self._requests.arm():
                continue
            if wanted:
                poll.register(self._objects.fileno(), select.POLLIN)
            poll.poll(_TICK if self._is_stalled else None)
            if wanted:
                poll.unregister(self._objects.fileno())

    def _take_requests(self) -> None:
        while True:
            try:
                request = self._requests.try_recv()
            except WouldBlock:
                return
            except SenderDied:
                self._remove_dead()
                continue
            name, what, rest = request[:8], request[8:9], request[9:]
            if what == _JOIN:
                self._members[name] = _Member(rest.decode())
            elif name in self._members:
                self._note(name, self._members[name], what)

    def _note(self, name: bytes, member: _Member, what: bytes) -> None:
        if what == _WANT:
            member.wants = True
            # The next request may withdraw this one.
            self._deal()
        elif what == _DONE and member.held:
            self._objects.complete(member.held.popleft())
        elif what == _CANCEL and member.wants:
            member.wants, member.gives_up = False, True
        elif what == _LEAVE:
            self._remove(name)

    def _deal(self) -> bool:
        """Gives objects to the consumers that want one; returns whether there was one."""
        has_dealt = False
        for name, member in list(self._members.items()):
            if not (member.wants or member.gives_up):
                continue
            message = None
            if member.wants:
                message = self._returned.popleft() if self._returned else self._objects.try_recv()
                if message is None:
                    continue
            if self._send(name, member, b"" if message is None else message.bytes):
                member.wants = member.gives_up = False
                if message is not None:
                    member.held.append(message)
                has_dealt = True
            elif message is not None:
                self._returned.appendleft(message)
        return has_dealt

    def _send(self, name: bytes, member: _Member, message: bytes) -> bool:
        """Sends a message to a consumer, and returns whether it was sent."""
        try:
            if member.sender is None:
                member.sender = Sender(
                    member.address, cap=self._max_bytes, first_chunk=_FIRST_CHUNK
                )
            member.sender.try_send(message)
        except (NoMailbox, OwnerDied, Closed):
            self._remove(name)
        except Error:
            # No space for a long message yet, or this process lacks a descriptor.
            self._is_stalled = True
        else:
            return True
        return False

    def _remove_dead(self) -> None:
        """Forgets the consumers that have died, also those that had not accepted the dealer."""
        for name, member in list(self._members.items()):
            if member.sender is not None:
                try:
                    member.sender.service()
                except Error:
                    self._remove(name)

    def _remove(self, name: bytes) -> None:
        """Forgets a consumer, and returns what it had not finished."""
        if (member := self._members.pop(name, None)) is not None:
            self._returned.extendleft(reversed(member.held))
            if member.sender is not None:
                member.sender.close()


def poll_now(descriptor: int) -> bool:
    """Returns whether a descriptor is readable."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _close_at_end(queue: WorkQueue[Any]) -> None:
    """Closes a queue when this process ends as usual: it has not died then.

    A child of ``multiprocessing`` runs the finalizers of that package only, and has imported them.
    """
    finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
    if finalize is not None:
        finalize(queue, _close, (ref(queue),), exitpriority=0)


def _close(queue: ref[WorkQueue[Any]]) -> None:
    if (one := queue()) is not None:
        one._close_ends()


def _close_all() -> None:
    for queue in list(_queues):
        queue._close_ends()


def _begin_in_child() -> None:
    """Lets a forked child open ends of its own. Its copies of the parent's ends are not closed."""
    for queue in list(_queues):
        closed = queue._closed
        queue._begin()
        queue._closed = closed


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_in_child)
