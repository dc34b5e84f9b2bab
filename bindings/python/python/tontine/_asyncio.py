"""Waits of an event loop, through the descriptors of mailboxes and senders."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from ._errors import WouldBlock
from ._tontine import Mailbox, Sender

#: Number of calls between two turns of the event loop while no call waits.
_CALLS_PER_TURN = 64

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


async def _take_turns() -> None:
    """Lets other tasks run even if a mailbox is never empty."""
    if not next(_calls) % _CALLS_PER_TURN:
        await asyncio.sleep(0)


async def _readable(end: Mailbox | Sender) -> None:
    """Waits until the descriptor of a mailbox or sender is readable."""
    descriptor = end.fileno()
    if descriptor in _waiting:
        raise RuntimeError(f"another task waits for {end!r}; let one wait, and share its result")
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    _waiting.add(descriptor)
    try:
        await readable.wait()
    finally:
        _waiting.discard(descriptor)
        loop.remove_reader(descriptor)
