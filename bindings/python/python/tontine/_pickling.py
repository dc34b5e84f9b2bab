"""Objects as messages: a pickle, with large buffers outside of it.

A large buffer, such as a NumPy array's memory, is copied once into the memory of the lane, and once
out of it. Everything else is a plain pickle, which begins with the byte 0x80; a message of parts
(``Sender.send_parts``) begins with another.
"""

from __future__ import annotations

from pickle import PickleBuffer, dumps, loads
from typing import Any

from ._tontine import part_ranges

#: The first protocol with buffers outside of a pickle.
PROTOCOL = 5

#: Minimum number of bytes of a buffer outside of the pickle.
LARGE = 16 << 10

#: Number of objects without large buffers after which none is expected.
_WITHOUT = 64


class Expectation:
    """Whether the next object of this process may have large buffers.

    With a callback for buffers, a put of a small object takes a sixth more time. So objects are
    first pickled without it, unless one of the last objects had large buffers.
    """

    def __init__(self) -> None:
        #: Number of objects that are still pickled as if they had large buffers.
        self.objects = 0


expected = Expectation()


def dump(obj: object) -> bytes | list[Any]:
    """Pickles an object into a message.

    Its ``__reduce_ex__`` may be called twice.

    Args:
        obj: Any object that can be pickled.

    Returns:
        The pickle, for ``Sender.send``, if the object has no large buffers; otherwise a list of the
        pickle and these buffers, for ``Sender.send_parts``. They show the object's own memory.
    """
    if not expected.objects and len(pickle := dumps(obj, PROTOCOL)) < LARGE:
        return pickle
    parts = dump_large(obj)
    return parts if len(parts) > 1 else parts[0]


def dump_large(obj: object) -> list[Any]:
    """Returns the pickle of an object that may have large buffers, and these buffers."""
    parts: list[Any] = []

    def add(buffer: PickleBuffer) -> bool:
        """Returns whether the pickle should contain the buffer."""
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if raw.nbytes >= LARGE:
            parts.append(raw)
        return raw.nbytes < LARGE

    pickle = dumps(obj, PROTOCOL, buffer_callback=add)
    expected.objects = _WITHOUT if parts else max(expected.objects - 1, 0)
    return [pickle, *parts]


def load(message: bytes | list[Any]) -> Any:
    """Returns the object of a message.

    Args:
        message: A result of ``Mailbox.recv_parts``. Large buffers of the object are then private
            memory, and writable if they were.
    """
    if type(message) is list:
        return loads(message[0], buffers=map(memoryview, message[1:]))
    return loads(message)  # type: ignore[arg-type]


def load_in_place(message: memoryview) -> Any:
    """Returns the object of a message whose large buffers stay in place.

    Args:
        message: The view of ``Mailbox.recv_view``, or any other view of a whole message.
    """
    ranges = part_ranges(message)
    if ranges is None:
        return loads(message)
    (start, end), *others = ranges
    return loads(message[start:end], buffers=[message[first:last] for first, last in others])
