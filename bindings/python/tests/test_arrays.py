"""Objects with large buffers, in a ``Queue`` and in messages of parts."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import numpy
import pytest
from tontine import Empty, Mailbox, OwnerDied, Queue, Sender, SenderDied, TooLarge
from tontine._pickling import LARGE, dump, load, load_in_place
from waiting import until, until_asleep

#: More bytes than a message may have before the consumer accepts the producer.
MANY = 600_000


class Subclass(numpy.ndarray):
    """An array whose class is kept."""


def arrays() -> Iterator[Any]:
    """Yields objects with and without large buffers."""
    square = numpy.arange(MANY // 8, dtype=numpy.float64).reshape(250, -1)
    yield square
    yield numpy.asfortranarray(square)
    yield square.T
    yield square[::2, ::3]  # not contiguous
    yield square[:0]
    yield numpy.zeros(0)
    yield numpy.array(3.5)
    yield numpy.array([("a", 1.5)] * 3000, dtype=[("name", "U4"), ("value", "f8")])
    yield numpy.array([{"an": "object"}, None] * 5000, dtype=object)
    yield square.view(Subclass)
    for length in (LARGE - 1, LARGE, LARGE + 1):
        yield numpy.arange(length, dtype=numpy.uint8)


def same(left: Any, right: Any) -> None:
    """Asserts that two arrays are equal, with type, order and flags."""
    assert type(left) is type(right)
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert (left == right).all()
    if right.size and (right.flags.c_contiguous or right.flags.f_contiguous):
        assert left.flags.c_contiguous == right.flags.c_contiguous
        assert left.flags.f_contiguous == right.flags.f_contiguous
    assert left.flags.aligned


@pytest.fixture
def queue() -> Iterator[Queue[Any]]:
    """A queue whose consumer and producer are this process."""
    with Queue[Any]() as made:
        made.bind()
        made.put("first")  # which connects
        assert made.get() == "first"
        yield made


def passed(queue: Queue[Any], value: Any) -> Any:
    """Returns a value after its way through a queue."""
    queue.put(value)
    return queue.get(timeout=30)


def test_arrays_arrive_as_private_writable_copies(queue: Queue[Any]) -> None:
    for array in arrays():
        copy = passed(queue, array)
        same(copy, array)
        before = array.copy()
        assert copy.flags.writeable
        if copy.dtype != object and copy.dtype.names is None:
            copy[...] += 1
            assert array.size == 0 or (copy != array).all()
        assert (array == before).all()


def test_read_only_array_stays_read_only(queue: Queue[Any]) -> None:
    array = numpy.zeros(MANY, numpy.uint8)
    array.flags.writeable = False
    assert not passed(queue, array).flags.writeable


def test_nested_object_keeps_structure_and_identity(queue: Queue[Any]) -> None:
    first, second = numpy.arange(20_000), numpy.ones((3, 20_000), order="F")
    value = {"a": [first, (second, "text")], "again": first, 3: {"deep": [[second]]}}
    copy = passed(queue, value)
    same(copy["a"][0], first)
    same(copy["a"][1][0], second)
    assert copy["again"] is copy["a"][0]
    assert copy[3]["deep"][0][0] is copy["a"][1][0]


def test_many_buffers_are_aligned_and_separate(queue: Queue[Any]) -> None:
    lengths = [LARGE + number for number in range(30)]
    copies = passed(queue, [numpy.full(n, n % 251, numpy.uint8) for n in lengths])
    assert [len(copy) for copy in copies] == lengths
    for copy in copies:
        assert copy.ctypes.data % 64 == 0
        copy += 1
    for copy, length in zip(copies, lengths):
        assert (copy == length % 251 + 1).all()


def test_buffers_that_are_no_arrays_arrive(queue: Queue[Any]) -> None:
    data = bytes(range(256)) * 400
    assert passed(queue, data) == data
    copy = passed(queue, bytearray(data))
    assert type(copy) is bytearray
    assert copy == data
    writable = passed(queue, pickle.PickleBuffer(bytearray(data)))
    assert type(writable) is memoryview
    assert writable == data
    writable[0] = 7
    read_only = passed(queue, [pickle.PickleBuffer(data)])[0]
    assert read_only == data
    assert read_only.readonly
    with pytest.raises((pickle.PicklingError, BufferError)):
        queue.put(pickle.PickleBuffer(memoryview(data)[::2]))
    assert passed(queue, "still works") == "still works"


def test_freed_memory_is_not_shared_between_arrays(queue: Queue[Any]) -> None:
    kept = []
    for number in range(20):
        array = passed(queue, numpy.full(100_000 + 1000 * (number % 3), number, numpy.int32))
        if number % 2:
            kept.append((number, array))
        del array
    for number, array in kept:
        assert (array == number).all()


def test_unread_arrays_are_returned(queue: Queue[Any]) -> None:
    array = numpy.arange(30_000)
    queue.put([array, "first"])
    queue.put("second")
    queue.bind().close()
    with pytest.raises(OSError, match="closed"):
        queue.put(array)
    (copy, text), second = queue.take_unread()
    same(copy, array)
    copy += 1
    assert (text, second) == ("first", "second")


def test_dump_and_load_need_no_queue() -> None:
    array = numpy.arange(30_000)
    parts = dump({"array": array})
    assert isinstance(parts, list)
    assert numpy.shares_memory(numpy.frombuffer(parts[1], array.dtype), array)
    same(load(parts)["array"], array)
    message = dump(("small", 1))
    assert isinstance(message, bytes)
    assert load(message) == load_in_place(memoryview(message)) == ("small", 1)


# Views.


def test_view_shows_arrays_in_place(queue: Queue[Any]) -> None:
    for array in arrays():
        queue.put((array, "text"))
        with queue.get_view(timeout=30) as (view, text):
            same(view, array)
            assert text == "text"
            # NumPy pickles subclasses, and arrays that are not contiguous, without buffers.
            is_plain = type(array) is numpy.ndarray and array.dtype != object
            is_contiguous = array.flags.c_contiguous or array.flags.f_contiguous
            if array.nbytes >= LARGE and is_plain and is_contiguous:
                assert view.ctypes.data % 64 == 0
                assert not view.flags.writeable
                with pytest.raises(ValueError, match="read-only"):
                    view[...] = 1
            del view
    with pytest.raises(Empty), queue.get_view(block=False):
        pass


def test_view_in_use_at_end_raises_and_receives_later(queue: Queue[Any]) -> None:
    queue.put(numpy.arange(MANY // 8))
    queue.put("next")
    kept: list[Any] = []
    with pytest.raises(BufferError, match="still in use"):
        with queue.get_view(timeout=30) as view:
            kept.append(view)
            del view
    with pytest.raises(BufferError, match="in use"):
        queue.get()
    assert kept[0].sum() == sum(range(MANY // 8))
    kept.clear()
    assert queue.get(timeout=30) == "next"


def test_exception_in_view_is_raised(queue: Queue[Any]) -> None:
    queue.put(numpy.arange(MANY // 8))
    with pytest.raises(KeyError):
        with queue.get_view(timeout=30) as view:
            del view
            raise KeyError
    assert passed(queue, 1) == 1


def test_fork_leaves_view_to_parent(queue: Queue[Any]) -> None:
    context = multiprocessing.get_context("fork")
    array = numpy.arange(MANY // 8)
    queue.put(array)
    with Queue[str]() as results:
        results.bind()
        with queue.get_view(timeout=30) as view:
            process = context.Process(target=put_array_and_word, args=(queue, results))
            process.start()
            assert results.get(timeout=30) == "child"
            same(view, array)
            del view
        # The child's array is too large to be sent before it is accepted.
        assert len(queue.get(timeout=30)) == MANY
        process.join()
        assert process.exitcode == 0


def put_array_and_word(queue: Queue[Any], results: Queue[str]) -> None:
    results.put("child")
    queue.put(numpy.ones(MANY, numpy.uint8))


# Limits and deaths.


def test_object_beyond_limit_is_refused_and_longest_is_not() -> None:
    with Queue[Any](max_bytes=8 << 20) as queue:
        queue.bind()
        most = queue.connect().max_message_len
        assert (2 << 20) - 1000 < most < 2 << 20
        with pytest.raises(TooLarge, match=rf"{most}") as error:
            queue.put(numpy.zeros(2 << 20, numpy.uint8))
        assert "2097" in str(error.value)
        queue.put("small")
        assert queue.get() == "small"
        array = numpy.arange(most - 1000, dtype=numpy.uint8)
        for _ in range(3):
            thread = threading.Thread(target=queue.put, args=(array,))
            thread.start()
            same(queue.get(timeout=30), array)
            thread.join()


def put_numbered(queue: Queue[Any], count: int, length: int) -> None:
    for number in range(count):
        queue.put((number, numpy.full(length, number, numpy.uint32)))


def test_arrays_of_several_producers_arrive_whole(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        queue.bind()
        processes = [
            context.Process(target=put_numbered, args=(queue, 20, length))  # type: ignore[attr-defined]
            for length in (100, 70_000, 400_000)
        ]
        for process in processes:
            process.start()
        counts: dict[int, int] = {}
        for _ in range(60):
            number, array = queue.get(timeout=60)
            assert number == counts.get(len(array), 0)
            counts[len(array)] = number + 1
            assert (array == number).all()
        for process in processes:
            process.join()


def put_then_die_in_copy(queue: Queue[Any], path: str) -> None:
    """Puts an array, and dies of SIGBUS in the middle of the copy of another."""
    queue.put(numpy.arange(MANY))
    with open(path, "wb+") as file:
        file.truncate(1 << 20)
        memory = mmap.mmap(file.fileno(), 1 << 20)
        file.truncate(1 << 19)
    # Without a message of Python's fault handler.
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    queue.put(["never", numpy.frombuffer(memory, numpy.uint8)])


def test_death_in_copy_of_array_loses_only_that_object(
    context: BaseContext, tmp_path: Path
) -> None:
    with Queue[Any]() as queue:
        queue.bind()
        queue.connect()
        process = context.Process(  # type: ignore[attr-defined]
            target=put_then_die_in_copy, args=(queue, str(tmp_path / "memory"))
        )
        process.start()
        same(queue.get(timeout=60), numpy.arange(MANY))
        with pytest.raises(SenderDied) as died:
            queue.get(timeout=60)
        assert died.value.pid == process.pid
        process.join()
        assert process.exitcode == -signal.SIGBUS
        put_from_thread(queue, numpy.ones(MANY))
        same(queue.get(timeout=60), numpy.ones(MANY))


def put_from_thread(queue: Queue[Any], value: Any) -> None:
    threading.Thread(target=queue.put, args=(value,)).start()


def put_arrays_forever(queue: Queue[Any], length: int) -> None:
    number = 0
    while True:
        queue.put((os.getpid(), numpy.full(length, number % 256, numpy.uint8)))
        number += 1


def test_killed_producers_of_arrays_lose_only_last_object(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        queue.bind()
        processes = [
            context.Process(target=put_arrays_forever, args=(queue, MANY))  # type: ignore[attr-defined]
            for _ in range(3)
        ]
        for process in processes:
            process.start()
        counts: dict[int, int] = {}
        dead: set[int | None] = set()
        while len(dead) < len(processes):
            try:
                pid, array = queue.get(timeout=60)
            except SenderDied as death:
                dead.add(death.pid)
                continue
            assert pid not in dead
            number = counts.get(pid, 0)
            counts[pid] = number + 1
            assert (array == number % 256).all()
            if number == 10:
                os.kill(pid, signal.SIGKILL)
        assert dead == {process.pid for process in processes}
        for process in processes:
            process.join()


def get_then_die(queue: Queue[Any], results: Queue[str]) -> None:
    queue.get()
    queue.get()
    results.put("got")
    os.kill(os.getpid(), signal.SIGKILL)


def test_death_of_consumer_returns_arrays(context: BaseContext) -> None:
    with Queue[Any]() as queue, Queue[str]() as results:
        results.bind()
        process = context.Process(target=get_then_die, args=(queue, results))  # type: ignore[attr-defined]
        process.start()
        array = numpy.arange(100_000)
        queue.put("first")
        sent = 0
        with pytest.raises(OwnerDied):
            while True:
                queue.put(array + sent)
                sent += 1
        assert results.get(timeout=60) == "got"
        process.join()
        unread = queue.take_unread()
        # The consumer had got the first array, and not yet acknowledged it.
        assert len(unread) == sent
        for number, copy in enumerate(unread):
            same(copy, array + number)


def chunk_bytes(process: int | str = "self") -> int:
    """Returns the number of bytes in the chunks of lanes that a process has mapped."""
    total = 0
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        if "tontine-chunk" in line:
            first, last = line.split()[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


@pytest.mark.parametrize("backlog", [8 << 20, 64 << 20])
def test_producer_of_arrays_waits_in_bounded_memory(context: BaseContext, backlog: int) -> None:
    with Queue[Any](large_backlog=backlog) as queue:
        queue.bind()
        process = context.Process(target=put_arrays_forever, args=(queue, 1 << 20))  # type: ignore[attr-defined]
        process.start()
        queue.get(timeout=60)
        until_asleep(process.pid, process.pid)
        # A chunk has twice the size of the one before.
        assert backlog // 4 < chunk_bytes(process.pid) <= backlog
        for number in range(1, 50):
            assert (queue.get(timeout=60)[1] == number).all()
        process.kill()
        process.join()


# Messages of parts.


def test_parts_arrive_as_sent(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        for parts in (
            [b""],
            [b"one"],
            [b"one", b"", b"x" * 70_000],
            [bytearray(100_000), memoryview(b"two"), numpy.arange(5)],
        ):
            sender.send_parts(parts, 30)
            received = mailbox.recv_parts(30)
            assert isinstance(received, list)
            assert [bytes(part) for part in received] == [bytes(part) for part in parts]
        with pytest.raises(ValueError, match="at least one part"):
            sender.send_parts([])
        with pytest.raises(TypeError):
            sender.send_parts(["text"])
        for plain in (b"", b"\x01", b"\x01" + bytes(30), b"plain"):
            sender.send(plain)
            assert mailbox.recv_parts(30) == plain


@pytest.mark.parametrize("change", ["count", "start", "length", "cut"])
def test_invalid_table_is_no_message_of_parts(address: str, change: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_parts([b"pickle", b"x" * 100])
        message = bytearray(mailbox.recv(30))
        if change == "cut":
            message = message[:60]
        else:
            at = {"count": 4, "start": 24, "length": 32}[change]
            message[at : at + 4] = b"\xff\xff\xff\xff"
        sender.send(message)
        assert mailbox.recv_parts(30) == bytes(message)


def test_full_lane_delays_parts(address: str) -> None:
    with Mailbox(address, cap=1 << 20) as mailbox, Sender(address, cap=1 << 20) as sender:
        sender.send(b"")
        mailbox.recv(30)
        part = bytes(100_000)
        with pytest.raises(TimeoutError):
            while True:
                sender.send_parts([b"", part], 0)
        thread = threading.Thread(target=sender.send_parts, args=([b"last", part],))
        thread.start()
        received: Callable[[], Any] = lambda: mailbox.recv_parts(30)[0]  # noqa: E731
        until(lambda: received() == b"last", "the part that waited arrives")
        thread.join()
