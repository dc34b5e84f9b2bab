"""``WorkQueue``, whose consumers are killed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.context import BaseContext
from queue import Empty
from typing import Any

import numpy
import pytest
from tontine import Closed, OwnerDied, Queue, TimedOut, WorkQueue
from waiting import until


def consume(tasks: WorkQueue[Any], results: Queue[Any]) -> None:
    """Gets objects until one is None, and says what it got."""
    while (task := tasks.get()) is not None:
        results.put((os.getpid(), task))
    results.put((os.getpid(), None))


def test_each_object_goes_to_one_consumer(context: BaseContext) -> None:
    tasks: WorkQueue[Any] = WorkQueue()
    results: Queue[Any] = Queue()
    results.bind()
    start: Any = context
    consumers = [start.Process(target=consume, args=(tasks, results)) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for task in range(300):
        tasks.put(task)
    for _ in consumers:
        tasks.put(None)
    got = [results.get(timeout=60) for _ in range(303)]
    assert sorted(task for _, task in got if task is not None) == list(range(300))
    assert {pid for pid, _ in got} == {consumer.pid for consumer in consumers}
    tasks.join(60)
    for consumer in consumers:
        consumer.join()
        assert consumer.exitcode == 0
    tasks.close()


def die_of_first(tasks: WorkQueue[Any], ready: Any, go: Any) -> None:
    """Gets an object, and waits to be killed."""
    ready.put(tasks.get())
    go.wait()


def test_object_of_dead_consumer_goes_to_another() -> None:
    context = multiprocessing.get_context("fork")
    with WorkQueue[Any]() as tasks:
        ready: Queue[Any] = Queue()
        ready.bind()
        go = context.Event()
        victims = [context.Process(target=die_of_first, args=(tasks, ready, go)) for _ in range(2)]
        for victim in victims:
            victim.start()
        for task in range(5):
            tasks.put(task)
        assert sorted(ready.get(timeout=60) for _ in victims) == [0, 1]
        with pytest.raises(TimedOut):
            tasks.join(0.01)
        for victim in victims:
            victim.kill()
            victim.join()
        assert sorted(tasks.get(timeout=60) for _ in range(5)) == [0, 1, 2, 3, 4]
        tasks.task_done()
        tasks.join(60)
        with pytest.raises(Empty):
            tasks.get_nowait()


def test_request_that_times_out_takes_no_object() -> None:
    with WorkQueue[Any]() as tasks:
        other = multiprocessing.get_context("fork").Process(target=put_all, args=(tasks, 200))
        got: list[int] = []
        other.start()
        while len(got) < 200:
            try:
                got.append(tasks.get(timeout=0.0001 * (len(got) % 3)))
            except Empty:
                pass
        other.join()
        assert got == list(range(200)) and other.exitcode == 0


def put_all(tasks: WorkQueue[Any], count: int) -> None:
    for number in range(count):
        tasks.put(number)


def test_threads_of_one_process_share_its_part() -> None:
    got: list[int] = []

    def take() -> None:
        while (task := tasks.get()) is not None:
            got.append(task)

    with WorkQueue[Any]() as tasks:
        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for task in range(100):
            tasks.put(task)
        for _ in threads:
            tasks.put(None)
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(100))


def test_large_arrays_pass() -> None:
    with WorkQueue[Any]() as tasks:
        other = multiprocessing.get_context("fork").Process(target=put_arrays, args=(tasks, 3))
        other.start()
        for number in range(3):
            array = tasks.get()
            assert array[-1] == number and array.flags.writeable
        tasks.task_done()
        other.join()
        assert other.exitcode == 0


def test_unused_queue_leaves_nothing() -> None:
    def open_now() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    WorkQueue[Any]().close()
    before = open_now()
    for _ in range(5):
        queue: WorkQueue[Any] = WorkQueue()
        queue.put(1)
        assert queue.get() == 1
        del queue
    gc.collect()
    assert open_now() == before


def put_arrays(tasks: WorkQueue[Any], count: int) -> None:
    for number in range(count):
        tasks.put(numpy.full(1 << 18, number))
    tasks.join()


def own(pipe: Any) -> None:
    tasks: WorkQueue[Any] = WorkQueue()
    pipe.send(tasks)
    signal.pause()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_end_of_owner_is_reported(how: str) -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    owner = context.Process(target=own, args=(there,))
    if how == "killed":
        owner.start()
        tasks: WorkQueue[Any] = here.recv()
    else:
        made: WorkQueue[Any] = WorkQueue()
        here.send(made)
        tasks = there.recv()
    tasks.put("one")
    assert tasks.get() == "one"
    tasks.task_done()
    tasks.join(60)
    tasks.put("two")
    tasks.put("three")
    ended: type[Exception] = Closed
    if how == "killed":
        owner.kill()
        owner.join()
        ended = OwnerDied
    else:
        made.close()
    with pytest.raises(ended):
        tasks.get()
    with pytest.raises(ended):
        until(lambda: tasks.put("four"), "the end is noticed")
    assert tasks.take_unread() == ["two", "three"]
    tasks.close()
    with pytest.raises(ValueError, match="this queue is closed"):
        tasks.get()


def test_random_kills_of_consumers_lose_nothing() -> None:
    context = multiprocessing.get_context("fork")
    count = 400
    with WorkQueue[Any]() as tasks:
        results: Queue[Any] = Queue(report_deaths=False)
        results.bind()

        def start() -> Any:
            consumer = context.Process(target=consume, args=(tasks, results))
            consumer.start()
            return consumer

        consumers = [start() for _ in range(3)]
        for task in range(count):
            tasks.put(task)
        seen: set[int] = set()
        repeated = kills = 0
        while len(seen) < count:
            _, task = results.get(timeout=60)
            repeated += task in seen
            seen.add(task)
            if len(seen) % 40 == 20 and kills < len(seen) // 40 + 1:
                kills += 1
                victim = consumers.pop(0)
                victim.kill()
                victim.join()
                consumers.append(start())
        assert kills and repeated <= kills
        for consumer in consumers:
            consumer.kill()
            consumer.join()
