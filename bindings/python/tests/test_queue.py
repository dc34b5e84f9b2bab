"""``Queue`` between processes, which are killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from tontine import (
    AddressInUse,
    Closed,
    Empty,
    Forked,
    Full,
    Mailbox,
    OwnerDied,
    Queue,
    Sender,
    SenderDied,
    TooLarge,
)
from waiting import until_asleep


def start(context: BaseContext, target: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


def put_numbers(queue: Queue[Any], name: str, count: int) -> None:
    for number in range(count):
        queue.put((name, number))


def put_then_die(queue: Queue[Any], *objects: Any) -> None:
    for one in objects:
        queue.put(one)
    os.kill(os.getpid(), signal.SIGKILL)


def connect_then_die(queue: Queue[Any]) -> None:
    queue.connect()
    os.kill(os.getpid(), signal.SIGKILL)


def connect_then_exit(queue: Queue[Any]) -> None:
    queue.connect()


def get_then_die(tasks: Queue[Any], results: Queue[Any], count: int) -> None:
    for _ in range(count):
        results.put(tasks.get())
    os.kill(os.getpid(), signal.SIGKILL)


def get_until_none(tasks: Queue[Any], results: Queue[Any]) -> None:
    while (task := tasks.get()) is not None:
        results.put(task)


def get_refused(queue: Queue[Any], results: Queue[Any]) -> None:
    with pytest.raises(AddressInUse) as refused:
        queue.get()
    results.put((refused.value.pid, str(refused.value)))


def use_after_fork(queue: Queue[Any], end: Any, results: Queue[Any]) -> None:
    try:
        end.recv(0) if isinstance(end, Mailbox) else end.send(b"child")
        results.put("no error")
    except Forked:
        results.put("forked")


def put_forever(queue: Queue[Any]) -> None:
    while True:
        queue.put(os.getpid().to_bytes(1000, "little"))


def test_objects_of_several_producers_arrive(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        processes = [start(context, put_numbers, queue, name, 200) for name in "abc"]
        received = [queue.get(timeout=30) for _ in range(600)]
        for process in processes:
            process.join()
        for name in "abc":
            assert [number for other, number in received if other == name] == list(range(200))
        # Producers that ended as usual have not died.
        with pytest.raises(Empty):
            queue.get(timeout=0.1)


def test_death_of_producer_ends_wait_for_objects(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        process = start(context, put_then_die, queue, "first", {"second": 2})
        assert queue.get(timeout=30) == "first"
        assert queue.get(timeout=30) == {"second": 2}
        with pytest.raises(SenderDied) as died:
            queue.get()
        assert died.value.pid == process.pid
        process.join()
        with pytest.raises(Empty):
            queue.get_nowait()


def test_death_before_first_put_is_reported(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        queue.bind()
        process = start(context, connect_then_die, queue)
        with pytest.raises(SenderDied) as died:
            queue.get()
        assert died.value.pid == process.pid
        process.join()


def test_usual_end_of_producer_is_not_reported(context: BaseContext) -> None:
    with Queue[Any]() as queue:
        queue.bind()
        start(context, connect_then_exit, queue).join()
        with pytest.raises(Empty):
            queue.get(timeout=0.1)


def test_death_of_consumer_returns_its_tasks(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[int]() as results:
        results.bind()
        first = start(context, get_then_die, tasks, results, 3)
        for number in range(10):
            tasks.put(number)
        assert [results.get(timeout=30) for _ in range(3)] == [0, 1, 2]
        first.join()
        with pytest.raises(OwnerDied) as died:
            tasks.put(10)
        assert died.value.pid == first.pid
        with pytest.raises(SenderDied):
            results.get()
        # The consumer had not reported that it had processed the last object.
        unread = tasks.take_unread()
        assert unread == list(range(2, 10))
        second = start(context, get_until_none, tasks, results)
        for number in [*unread, 10]:
            tasks.put(number)
        assert [results.get(timeout=30) for _ in range(9)] == list(range(2, 11))
        tasks.put(None)  # type: ignore[arg-type]
        second.join()


def test_killed_producers_never_block_others(context: BaseContext) -> None:
    with Queue[bytes]() as queue:
        queue.bind()
        processes = [start(context, put_forever, queue) for _ in range(4)]
        deaths: set[int | None] = set()
        received: dict[int, int] = {}
        while len(deaths) < len(processes):
            try:
                pid = int.from_bytes(queue.get(timeout=30), "little")
            except SenderDied as death:
                deaths.add(death.pid)
            else:
                assert pid not in deaths
                received[pid] = received.get(pid, 0) + 1
                if received[pid] == 500:
                    os.kill(pid, signal.SIGKILL)
        assert deaths == {process.pid for process in processes}
        for process in processes:
            process.join()


def test_second_consumer_is_refused(context: BaseContext) -> None:
    with Queue[Any]() as queue, Queue[Any]() as results:
        queue.bind()
        results.bind()
        process = start(context, get_refused, queue, results)
        pid, text = results.get(timeout=30)
        process.join()
        assert pid == os.getpid()
        assert "one process at a time gets from a queue" in text


def test_put_at_address_waits_for_consumer(address: str) -> None:
    queue: Queue[str] = Queue(address=address)
    with pytest.raises(Full, match="no process listens"):
        queue.put("too early", timeout=0.05)
    with pytest.raises(Full):
        queue.put_nowait("too early")
    thread = threading.Timer(0.1, queue.bind)
    thread.start()
    queue.put("in time", timeout=30)
    assert queue.get(timeout=30) == "in time"
    queue.close()


def get_then_sleep(queue: Queue[bytes]) -> None:
    queue.get()
    time.sleep(60)


def test_put_continues_while_consumer_is_busy(context: BaseContext) -> None:
    queue: Queue[bytes] = Queue()
    consumer = start(context, get_then_sleep, queue)
    # Half of it arrives before the consumer's first `get`.
    for _ in range(8):
        queue.put(bytes(50_000), timeout=30)
    while True:
        try:
            # Three of these need memory of 32 MiB.
            for _ in range(3):
                queue.put(bytes(10_000_000), timeout=10)
            break
        except Full:
            assert consumer.is_alive()
    queue.close()
    consumer.kill()
    consumer.join()


def test_full_queue_raises_full() -> None:
    with Queue[bytes](max_bytes=8192) as queue:
        queue.bind()
        with pytest.raises(Full):
            for _ in range(100):
                queue.put_nowait(bytes(512))
        with pytest.raises(Full):
            queue.put(bytes(512), timeout=0.05)
        with pytest.raises(TooLarge):
            queue.put(bytes(8192))
        assert queue.get() == bytes(512)
        queue.join_thread()
        queue.cancel_join_thread()


def test_task_done_keeps_object_from_being_returned() -> None:
    queue: Queue[str] = Queue()
    queue.bind()
    for text in ("done", "taken", "left"):
        queue.put(text)
    assert queue.get() == "done"
    queue.task_done()
    mailbox = queue.bind()
    mailbox.close()
    assert queue.take_unread() == ["taken", "left"]


def test_closed_queue_refuses_objects_of_producers() -> None:
    queue: Queue[int] = Queue()
    other: Queue[int] = pickle.loads(pickle.dumps(queue))
    queue.bind()
    other.put(1)
    assert queue.get() == 1
    queue.close()
    queue.close()
    with pytest.raises(Closed):
        other.put(2)
    for call in (queue.get, queue.bind, queue.connect, lambda: queue.put(3)):
        with pytest.raises(ValueError, match="queue is closed"):
            call()


def test_object_that_cannot_be_pickled_is_refused() -> None:
    with Queue[Any]() as queue:
        queue.bind()
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            queue.put(lambda: None)
        with pytest.raises(Empty):
            queue.get_nowait()


def test_bytes_are_not_pickled(address: str) -> None:
    with Queue[bytes](address=address, pickled=False) as queue:
        queue.bind()
        with Sender(address) as sender:
            sender.send(b"from any program")
            assert queue.get(timeout=30) == b"from any program"
        queue.put(bytearray(b"a buffer"))  # type: ignore[arg-type]
        assert queue.get() == b"a buffer"


def test_pickles_of_other_users_are_refused() -> None:
    with pytest.raises(ValueError, match="unpickling executes code"):
        Queue(allow_uids=[1000])
    Queue(allow_uids=[1000], pickled=False)


def test_other_user_is_denied_or_allowed(address: str) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    name = f"@tontine-test-{os.getpid()}"
    context = multiprocessing.get_context("fork")
    for allowed in (False, True):
        uids = [12345] if allowed else []
        with Queue[bytes](address=name, pickled=False, allow_uids=uids) as queue:
            queue.bind()
            process = start(context, put_as_other_user, name)
            if allowed:
                assert queue.get(timeout=30) == b"other user"
                queue.task_done()
            while process.is_alive():
                with contextlib.suppress(Empty):
                    queue.get(timeout=0.05)
            process.join()
            assert process.exitcode == (0 if allowed else 3)


def put_as_other_user(name: str) -> None:
    os.setuid(12345)
    try:
        with Sender(name, allow_uids=[0]) as sender:
            sender.send(b"other user")
            sender.wait_acked(30)
    except PermissionError:
        os._exit(3)
    except OSError as error:
        print(repr(error), flush=True)
        os._exit(4)


def test_ends_of_parent_raise_forked_in_child(address: str) -> None:
    context = multiprocessing.get_context("fork")
    with Mailbox(address) as mailbox, Sender(address) as sender, Queue[str]() as results:
        results.bind()
        for end in (mailbox, sender):
            process = start(context, use_after_fork, results, end, results)
            assert results.get(timeout=30) == "forked"
            process.join()
        sender.send(b"still works")
        assert mailbox.recv(10) == b"still works"


def test_lock_held_during_fork_is_reported_in_child(address: str) -> None:
    context = multiprocessing.get_context("fork")
    mailbox = Mailbox(address)
    with Sender(address, cap=4096) as sender, Queue[str]() as results:
        results.bind()

        def fill() -> None:
            # The mailbox may be closed before it has accepted the lane.
            with pytest.raises((Closed, OwnerDied)):
                while True:
                    sender.send(bytes(512))

        thread = threading.Thread(target=fill)
        thread.start()
        until_asleep(thread.native_id)
        process = start(context, use_after_fork, results, sender, results)
        assert results.get(timeout=30) == "forked"
        process.join()
        mailbox.close()
        thread.join()


@pytest.mark.parametrize("what", ["put", "get"])
def test_threads_of_forked_child_share_its_ends(what: str) -> None:
    context = multiprocessing.get_context("fork")
    with Queue[int]() as first, Queue[int]() as second:
        for queue in (first, second):
            queue.bind()
            queue.put(1)
            assert queue.get() == 1
        if what == "get":
            second.close()
            second = Queue()
        process = start(context, use_in_threads, first, second, what)
        if what == "get":
            for number in range(16):
                second.put(number)
        assert sorted(first.get(timeout=30) for _ in range(16)) == list(range(16))
        process.join()
        assert process.exitcode == 0


def use_in_threads(first: Queue[int], second: Queue[int], what: str) -> None:
    def put(number: int) -> None:
        first.put(second.get() if what == "get" else number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_forked_child_makes_its_own_ends() -> None:
    context = multiprocessing.get_context("fork")
    with Queue[Any]() as queue:
        queue.bind()
        queue.put(("parent", 0))
        process = start(context, put_numbers, queue, "child", 2)
        received = [queue.get(timeout=30) for _ in range(3)]
        process.join()
        assert sorted(received) == [("child", 0), ("child", 1), ("parent", 0)]
        queue.put(("parent", 1))
        assert queue.get(timeout=30) == ("parent", 1)
