"""``maxsize``, ``qsize``, ``empty``, ``full`` and ``join``."""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import numpy
import pytest
from tontine import Full, OwnerDied, Queue
from waiting import until_asleep


def start(context: BaseContext, target: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


def put(queue: Queue[Any], *objects: Any) -> None:
    for one in objects:
        queue.put(one)


def get_until_none(tasks: Queue[Any], results: Queue[Any]) -> None:
    while (task := tasks.get()) is not None:
        results.put(task)
    tasks.task_done()


def test_consumer_counts_objects_of_all_producers(context: BaseContext) -> None:
    with Queue[bytes]() as queue:
        assert (queue.qsize(), queue.empty(), queue.full()) == (0, True, False)
        # Before there is a consumer: one lane of several chunks, one of small objects.
        for length in (10, 100_000):
            start(context, put, queue, *[bytes(length)] * 7).join()
        assert not queue.empty()
        with pytest.raises(NotImplementedError):
            queue.qsize()
        queue.bind()
        for left in range(14, 0, -1):
            assert (queue.qsize(), queue.empty()) == (left, False)
            queue.get_nowait()
        assert (queue.qsize(), queue.empty()) == (0, True)


def test_consumer_counts_across_chunks_and_laps() -> None:
    with Queue[bytes]() as queue:
        queue.bind()
        expected: list[int] = []
        for number in range(2000):
            length = (number * 7919) % 50_000
            expected.append(length)
            queue.put(bytes(length))
            if number % 3:
                assert len(queue.get()) == expected.pop(0)
            # The consumer may not have received the newest chunk yet.
            assert queue.qsize() <= len(expected)
        while expected:
            assert len(queue.get()) == expected.pop(0)
            assert queue.qsize() == len(expected)


def test_producer_counts_unacknowledged_objects(context: BaseContext) -> None:
    with Queue[Any]() as tasks, Queue[Any]() as results:
        put(tasks, 1, 2, 3)
        assert (tasks.qsize(), tasks.empty()) == (3, False)
        worker = start(context, get_until_none, tasks, results)
        assert [results.get(timeout=30) for _ in range(3)] == [1, 2, 3]
        tasks.put(None)
        tasks.join()
        assert (tasks.qsize(), tasks.empty()) == (0, True)
        worker.join()


def test_maxsize_bounds_large_arrays() -> None:
    with Queue[Any](2) as queue:
        queue.bind()
        for _ in range(2):
            queue.put_nowait(numpy.zeros(20_000))
        with pytest.raises(Full):
            queue.put(numpy.zeros(20_000), timeout=0.05)
        assert queue.qsize() == 2
        assert len(queue.get()) == 20_000
        queue.task_done()
        queue.put_nowait(1)


@pytest.mark.parametrize("maxsize", [1, 5])
def test_put_waits_at_maxsize(maxsize: int) -> None:
    with Queue[int](maxsize) as queue:
        queue.bind()
        for number in range(maxsize):
            assert not queue.full()
            queue.put_nowait(number)
        assert queue.full()
        with pytest.raises(Full):
            queue.put_nowait(-1)
        with pytest.raises(Full):
            queue.put(-1, timeout=0.05)
        thread = threading.Thread(target=queue.put, args=(maxsize,))
        thread.start()
        until_asleep(thread.native_id)
        assert queue.get() == 0
        queue.task_done()
        thread.join(30)
        assert not thread.is_alive()
        assert queue.full()
        assert [queue.get() for _ in range(maxsize)] == list(range(1, maxsize + 1))


def test_stream_at_maxsize_loses_nothing(context: BaseContext) -> None:
    with Queue[int](3) as queue:
        process = start(context, put, queue, *range(5000))
        for number in range(5000):
            assert queue.get(timeout=30) == number
            assert queue.qsize() <= 3
        process.join()


def test_put_at_maxsize_notices_death_of_consumer() -> None:
    context = multiprocessing.get_context("fork")
    with Queue[int](1) as tasks, Queue[int]() as results:
        consumer = start(context, get_until_none, tasks, results)
        tasks.put(1)
        assert results.get(timeout=30) == 1
        consumer.kill()
        with pytest.raises(OwnerDied):
            for number in range(3):
                tasks.put(number, timeout=30)
        consumer.join()
