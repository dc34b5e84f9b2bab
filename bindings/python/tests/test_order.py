"""The order of messages of different senders, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
from tontine import Error, Mailbox, Queue, Sender

ROUNDS = 200
PER_PRODUCER = 1000


@pytest.fixture
def causal_queue() -> Any:
    """A queue of this process, in causal order."""
    with Queue[Any]() as queue:
        if queue.bind().order != "causal":
            pytest.skip("the clock source is not the processor's counter")
        yield queue


def put_when_told(queue: Queue[Any], name: str, told: Any, done: Any) -> None:
    for _ in range(ROUNDS):
        told.acquire()
        queue.put(name)
        done.release()


def put_numbers(queue: Queue[Any], producer: int) -> None:
    for number in range(PER_PRODUCER):
        queue.put((producer, number))


def consume_until_none(queue: Queue[Any], ready: Any, counts: Any) -> None:
    queue.bind()
    ready.set()
    count = 0
    while queue.get() is not None:
        count += 1
    counts.put((count, queue.bind().order))


def test_object_put_after_another_processs_is_received_after_it(causal_queue: Queue[Any]) -> None:
    told = [multiprocessing.Semaphore(0) for _ in "ab"]
    done = multiprocessing.Semaphore(0)
    producers = [
        multiprocessing.Process(target=put_when_told, args=(causal_queue, name, one, done))
        for name, one in zip("ab", told)
    ]
    for producer in producers:
        producer.start()
    for number in range(ROUNDS):
        # The producers take turns to be first, so that no fixed order of them is right.
        first = number % 2
        for one in (first, 1 - first):
            told[one].release()
            assert done.acquire(timeout=60)
        received = causal_queue.get(timeout=60) + causal_queue.get(timeout=60)
        assert received == ("ab", "ba")[first], number
    for producer in producers:
        producer.join(60)
        assert producer.exitcode == 0


@pytest.mark.parametrize("run", range(5))
def test_sentinel_follows_objects_of_joined_producers(run: int) -> None:
    queue = Queue[Any]()
    ready = multiprocessing.Event()
    counts: Any = multiprocessing.Queue()
    consumer = multiprocessing.Process(target=consume_until_none, args=(queue, ready, counts))
    consumer.start()
    assert ready.wait(60)
    producers = [
        multiprocessing.Process(target=put_numbers, args=(queue, number)) for number in range(3)
    ]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(60)
        assert producer.exitcode == 0
    queue.put(None)
    count, order = counts.get(timeout=60)
    consumer.join(60)
    if order != "causal":
        pytest.skip("the clock source is not the processor's counter")
    assert count == 3 * PER_PRODUCER


def test_mailbox_has_chosen_order() -> None:
    with Mailbox("@order-default") as mailbox:
        assert mailbox.order == "by_sender"
    with Mailbox("@order-best", order=None) as best:
        assert best.order in ("causal", "by_sender")
        try:
            with Mailbox("@order-causal", order="causal") as causal, Sender("@order-causal") as one:
                assert causal.order == best.order == "causal"
                one.send(b"hello")
                assert causal.recv(timeout=60) == b"hello"
        except Error as error:
            assert best.order == "by_sender" and "clock" in str(error)
    with pytest.raises(ValueError, match="found 'fifo'|found \"fifo\""):
        Mailbox("@order-odd", order="fifo")  # type: ignore[arg-type]
