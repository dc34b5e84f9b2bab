"""Waits of an event loop, through the descriptors of mailboxes and senders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Any, Generic, TypeVar

from ._errors import NoSenders, WouldBlock
from ._queue import Empty, Full, Queue
from ._tontine import Mailbox, Sender

T = TypeVar("T")

#: Number of calls between two turns of the event loop while no call waits.
_CALLS_PER_TURN = 64

#: Seconds between two attempts to connect to a queue's address without a consumer.
_CONNECT_PAUSE = 0.01

_calls = count(1)
_waiting: set[int] = set()


async def recv(mailbox: Mailbox) -> bytes:
    """Waits for the next message."""
    await _take_turns()
    while True:
        try:
            return mailbox.try_recv()
        except WouldBlock:
            if mailbox.arm():
                await _readable(mailbox)


async def send(sender: Sender, message: Any) -> None:
    """Sends a message once there is free space."""
    await _take_turns()
    while True:
        try:
            return sender.try_send(message)
        except WouldBlock:
            if sender.arm(memoryview(message).nbytes):
                await _readable(sender)


class AsyncQueue(Generic[T]):
    """The methods of a ``Queue`` that wait, for tasks of asyncio.

    No thread is used: the event loop waits for the queue's descriptors. A cancelled ``get`` has
    removed nothing, and a cancelled ``put`` has put nothing. ``async for`` gets objects until no
    watched process and no producer is left (``Queue.watch``).

    Args:
        queue: The queue, which this process may use otherwise, too.
    """

    __module__ = "tontine"

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue

    async def get(self) -> T:
        """Removes and returns an object, while the event loop runs other tasks.

        Raises:
            RuntimeError: Another task waits for this queue.
            Other exceptions: As for ``Queue.get``, without ``Empty``.
        """
        await _take_turns()
        while True:
            try:
                return self._queue.get_nowait()
            except Empty:
                mailbox = self._queue.bind()
                if mailbox.arm():
                    await _readable(mailbox, self._queue._watched())

    async def put(self, obj: T) -> None:
        """Puts an object into the queue, and waits while the event loop runs other tasks.

        Raises:
            RuntimeError: Another task waits for this queue.
            Other exceptions: As for ``Queue.put``, without ``Full``.
        """
        await _take_turns()
        while True:
            try:
                return self._queue.put_nowait(obj)
            except Full:
                if (sender := self._queue._sender) is None:
                    await asyncio.sleep(_CONNECT_PAUSE)
                elif sender.arm(self._queue._max_length(obj)):
                    await _readable(sender)

    def __aiter__(self) -> AsyncQueue[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.get()
        except NoSenders:
            raise StopAsyncIteration from None


async def _take_turns() -> None:
    """Lets other tasks run even if a mailbox is never empty."""
    if not next(_calls) % _CALLS_PER_TURN:
        await asyncio.sleep(0)


async def _readable(end: Mailbox | Sender, others: Iterable[int] = ()) -> None:
    """Waits until the descriptor of a mailbox or sender, or another one, is readable."""
    descriptor = end.fileno()
    if descriptor in _waiting:
        raise RuntimeError(f"another task waits for {end!r}; let one wait, and share its result")
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    descriptors = (descriptor, *others)
    for one in descriptors:
        loop.add_reader(one, readable.set)
    _waiting.add(descriptor)
    try:
        await readable.wait()
    finally:
        _waiting.discard(descriptor)
        for one in descriptors:
            loop.remove_reader(one)
