"""The end of watched processes, and of the last producer."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from tontine import Empty, Mailbox, NoSenders, Queue, Sender, SenderDied
from waiting import until_asleep


def start(context: BaseContext, target: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


def put_then(queue: Queue[Any], end: str, *objects: Any) -> None:
    # The tracebacks of the failures would be in the output of the tests.
    sys.stderr = open(os.devnull, "w")
    if end == "connect":
        queue.connect()
    for one in objects:
        queue.put(one)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "exit":
        sys.exit(3)
    elif end in ("raise", "connect"):
        raise RuntimeError("a failure")


def put_for_each(queue: Queue[Any], tokens: Queue[Any]) -> None:
    while (token := tokens.get()) is not None:
        queue.put(token)


@pytest.mark.parametrize("objects", [(), ("first", "second")], ids=["nothing", "objects"])
@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("kill", "signal 9"),
        ("raise", "exit code 1"),
        ("connect", "exit code 1"),
        ("exit", "exit code 3"),
        ("return", None),
    ],
)
def test_end_of_watched_process_ends_get(
    context: BaseContext, end: str, how: str | None, objects: tuple[str, ...]
) -> None:
    with Queue[str]() as queue:
        process = start(context, put_then, queue, end, *objects)
        queue.watch(process)
        for one in objects:
            assert queue.get() == one
        if how is not None:
            with pytest.raises(SenderDied) as died:
                queue.get()
            assert (died.value.pid, died.value.errno) == (process.pid, errno.EOWNERDEAD)
            # The mailbox itself reports the death of a process that had connected.
            assert how in str(died.value) or (end == "kill" and objects)
        for _ in range(2):
            with pytest.raises(NoSenders):
                queue.get()
        process.join()


def test_process_that_ended_before_watch_is_reported(context: BaseContext) -> None:
    with Queue[str]() as queue:
        process = start(context, put_then, queue, "raise")
        process.join()
        queue.watch(process)
        with pytest.raises(SenderDied, match="exit code 1"):
            queue.get()
        with pytest.raises(NoSenders):
            queue.get()


def test_wait_for_watched_process_does_not_miss_objects(context: BaseContext) -> None:
    with Queue[int]() as queue, Queue[int]() as tokens:
        process = start(context, put_for_each, queue, tokens)
        queue.watch(process)
        with pytest.raises(Empty):
            queue.get(timeout=0.01)
        with pytest.raises(Empty):
            queue.get_nowait()
        for number in range(100):
            tokens.put(number)
            assert queue.get(timeout=30) == number
        tokens.put(None)  # type: ignore[arg-type]
        with pytest.raises(NoSenders):
            queue.get(timeout=30)
        process.join()


def test_other_producers_keep_the_queue_alive(context: BaseContext) -> None:
    with Queue[Any]() as queue, Queue[int]() as tokens:
        other = start(context, put_for_each, queue, tokens)
        tokens.put(1)
        assert queue.get(timeout=30) == 1
        process = start(context, put_then, queue, "kill")
        queue.watch(process)
        with pytest.raises(SenderDied):
            queue.get()
        with pytest.raises(Empty):
            queue.get(timeout=0.05)
        tokens.put(2)
        assert queue.get(timeout=30) == 2
        tokens.put(None)  # type: ignore[arg-type]
        with pytest.raises(NoSenders):
            queue.get()
        for one in (process, other):
            one.join()


def test_child_is_watched_by_its_process_id() -> None:
    with Queue[int]() as queue:
        pid = os.fork()
        if not pid:
            os._exit(5)
        queue.watch(pid)
        with pytest.raises(SenderDied, match=f"process {pid} ended with exit code 5"):
            queue.get()
        # The program still waits for its child itself.
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        queue.watch(pid)
        with pytest.raises(NoSenders):
            queue.get()


def test_watch_reports_no_deaths_if_the_queue_does_not(context: BaseContext) -> None:
    with Queue[str](report_deaths=False) as queue:
        for objects in ((), ("first",)):
            queue.watch(start(context, put_then, queue, "kill", *objects))
        assert queue.get() == "first"
        with pytest.raises(NoSenders):
            queue.get()


def test_process_that_was_not_started_is_refused(context: BaseContext) -> None:
    process = context.Process(target=put_then)  # type: ignore[attr-defined]
    with Queue[str]() as queue, pytest.raises(ValueError, match="call start before watch"):
        queue.watch(process)


def test_close_ends_wait_for_watched_process() -> None:
    queue: Queue[int] = Queue()
    queue.watch(os.getpid())
    refused: list[ValueError] = []

    def get() -> None:
        try:
            queue.get()
        except ValueError as error:
            refused.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    until_asleep(thread.native_id)
    queue.close()
    thread.join(30)
    assert len(refused) == 1


def test_mailbox_reports_that_no_sender_is_left(address: str) -> None:
    with Mailbox(address, report_no_senders=True) as mailbox:
        for _ in range(2):
            with Sender(address) as sender:
                sender.send(b"the last one")
            assert mailbox.recv() == b"the last one"
            with pytest.raises(NoSenders) as none_left:
                mailbox.recv()
            assert none_left.value.errno == errno.ENOTCONN
            with pytest.raises(NoSenders):
                mailbox.try_recv()
