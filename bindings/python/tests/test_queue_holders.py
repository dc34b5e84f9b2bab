"""Objects of a queue before, between and after its consumers, and who holds them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from tontine import AddressInUse, Closed, Empty, NoMailbox, OwnerDied, Queue, SenderDied
from waiting import until


def start(context: BaseContext, target: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


def put(queue: Queue[Any], *objects: Any) -> None:
    for one in objects:
        queue.put(one)


def put_then_die(queue: Queue[Any], *objects: Any) -> None:
    put(queue, *objects)
    os.kill(os.getpid(), signal.SIGKILL)


def get_then_put(queue: Queue[Any], results: Queue[Any], count: int) -> None:
    for _ in range(count):
        results.put(queue.get())
    queue.task_done()


def bind_then_sleep(queue: Queue[Any], results: Queue[Any]) -> None:
    queue.bind()
    results.put("bound")
    signal.pause()


def fork_then_die(queue: Queue[Any], results: Queue[Any]) -> None:
    """Becomes the consumer, and dies; its child lives on."""
    results.put(queue.get())
    child = os.fork()
    if not child:
        signal.pause()
    results.put(child)
    results.connect().wait_acked()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("length", [10, 250_000, 1_000_000])
def test_producer_ends_before_first_get(context: BaseContext, length: int) -> None:
    with Queue[bytes]() as queue:
        start(context, put, queue, bytes(length)).join()
        assert queue.get(timeout=30) == bytes(length)


def test_objects_of_killed_producer_precede_its_death(context: BaseContext) -> None:
    with Queue[str]() as queue:
        process = start(context, put_then_die, queue, "first", "second")
        process.join()
        assert [queue.get(timeout=30), queue.get(timeout=30)] == ["first", "second"]
        with pytest.raises(SenderDied) as died:
            queue.get(timeout=30)
        assert died.value.pid == process.pid


def test_child_gets_what_creator_put_before_it_started(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[int]() as results:
        put(tasks, 1, 2, 3)
        start(context, get_then_put, tasks, results, 3).join()
        assert [results.get(timeout=30) for _ in range(3)] == [1, 2, 3]


def test_consumers_take_turns(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[int]() as results:
        for first in (0, 10):
            put(tasks, first, first + 1)
            start(context, get_then_put, tasks, results, 2).join()
            assert [results.get(timeout=30), results.get(timeout=30)] == [first, first + 1]
            # The consumer ended without closing: it counts as dead, and left nothing.
            assert tasks.take_unread() == []
        start(context, put, tasks, 20).join()
        assert tasks.get(timeout=30) == 20


def test_killed_consumer_is_succeeded_while_its_child_lives() -> None:
    context = multiprocessing.get_context("fork")
    with Queue[int]() as tasks, Queue[int]() as results:
        results.bind()
        consumer = start(context, fork_then_die, tasks, results)
        put(tasks, 1, 2)
        assert results.get(timeout=30) == 1
        child = results.get(timeout=30)
        results.task_done()
        consumer.join()
        try:
            with pytest.raises(OwnerDied):
                tasks.put(3)
            assert tasks.take_unread() == [1, 2]
            successor = start(context, get_then_put, tasks, results, 1)
            tasks.put(4, timeout=30)
            with pytest.raises(SenderDied):
                results.get(timeout=30)
            assert results.get(timeout=30) == 4
            successor.join()
        finally:
            os.kill(child, signal.SIGKILL)


def test_unaccepted_objects_of_dead_consumer_are_taken_back_once(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[str]() as results:
        consumer = start(context, bind_then_sleep, tasks, results)
        assert results.get(timeout=30) == "bound"
        # The consumer has not accepted this process, and never will.
        tasks.put(1)
        consumer.kill()
        consumer.join()
        with pytest.raises(OwnerDied) as died:
            tasks.put(2)
        assert died.value.pid == consumer.pid
        assert tasks.take_unread() == [1]
        assert tasks.bind().sender_count == 0
        with pytest.raises(Empty):
            tasks.get(timeout=0.1)
        tasks.put(3)
        assert tasks.get(timeout=30) == 3


def test_close_of_consumer_reaches_unaccepted_producers(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[str]() as results:
        results.bind()
        consumer = start(context, bind_then_close, tasks, results)
        assert results.get(timeout=30) == "bound"
        tasks.put(1)
        os.kill(consumer.pid or 0, signal.SIGUSR1)
        assert results.get(timeout=30) == "closed"
        with pytest.raises(Closed):
            tasks.put(2)
        assert tasks.take_unread() == [1]
        os.kill(consumer.pid or 0, signal.SIGUSR1)
        consumer.join()


def bind_then_close(queue: Queue[Any], results: Queue[Any]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    queue.bind()
    results.put("bound")
    signal.sigwait([signal.SIGUSR1])
    queue.close()
    results.put("closed")
    signal.sigwait([signal.SIGUSR1])


def test_put_without_any_holder_fails_at_once() -> None:
    queue: Queue[int] = Queue()
    copy: Queue[int] = pickle.loads(pickle.dumps(queue))
    queue.close()
    with pytest.raises(NoMailbox):
        copy.put(1)


def test_put_between_consumers_waits_in_the_kernel(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[int]() as results:
        tasks.put(0)
        start(context, get_then_put, tasks, results, 1).join()
        assert tasks.take_unread() == []
        # A producer that holds the queue, and one that knows its address only.
        copy: Queue[int] = pickle.loads(pickle.dumps(tasks))
        for number, queue in enumerate([tasks, copy], 1):
            queue.put(number, timeout=0)
        copy.close()
        start(context, get_then_put, tasks, results, 2).join()
        assert sorted(results.get(timeout=30) for _ in range(3)) == [0, 1, 2]


def test_connect_requires_live_consumer(context: BaseContext) -> None:
    with Queue[int]() as tasks, Queue[int]() as results:
        tasks.put(0)
        start(context, get_then_put, tasks, results, 1).join()
        with pytest.raises((OwnerDied, Closed)):
            tasks.put(1)
        assert tasks.take_unread() == []
        with pytest.raises(NoMailbox):
            tasks.connect(timeout=0.05)
        tasks.bind()
        tasks.connect(timeout=0)


def test_copy_from_another_queue_puts_and_cannot_get(context: BaseContext) -> None:
    with Queue[Any]() as mailboxes, Queue[Any]() as results:
        process = start(context, answer, mailboxes)
        mailboxes.put(results)
        assert results.get(timeout=30) == "answer"
        assert "can only put" in results.get(timeout=30)
        process.join()


def answer(mailboxes: Queue[Any]) -> None:
    results = mailboxes.get()
    results.put("answer")
    with pytest.raises(AddressInUse) as refused:
        results.get()
    results.put(str(refused.value))


def test_objects_outlive_process_that_made_the_queue(tmp_path: Path) -> None:
    # The creator starts a producer and a consumer, and dies before the consumer gets.
    program = tmp_path / "creator.py"
    program.write_text(textwrap.dedent("""
        import os, signal, sys, tontine
        queue = tontine.Queue()
        creator = os.getpid()
        if not os.fork():
            queue.put("first")
            queue.put("second")
            queue.close()
            os._exit(0)
        os.wait()
        read, write = os.pipe()
        if os.fork():
            os.kill(creator, signal.SIGKILL)
        os.close(write)
        os.read(read, 1)  # the creator has ended
        with open(sys.argv[1], "w") as file:
            print(queue.get(timeout=30), queue.get(timeout=30), file=file, flush=True)
            try:
                queue.get(timeout=0)
            except tontine.Empty:
                print("empty", file=file)
    """))
    output = tmp_path / "output"
    creator = subprocess.run([sys.executable, str(program), str(output)], timeout=60)
    assert creator.returncode == -signal.SIGKILL
    until(lambda: output.exists() and "empty" in output.read_text(), "the consumer got all")
    assert output.read_text() == "first second\nempty\n"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_queue_has_one_descriptor_until_it_is_closed(context: BaseContext) -> None:
    def use() -> None:
        with Queue[int]() as queue:
            start(context, put, queue, 1).join()
            assert queue.get(timeout=30) == 1

    use()
    gc.collect()
    before = descriptors()
    queues = [Queue[int]() for _ in range(10)]
    assert descriptors() == before + len(queues)
    for queue in queues:
        queue.close()
    assert descriptors() == before
    queues = [Queue[int]() for _ in range(10)]
    del queue, queues
    gc.collect()
    assert descriptors() == before
    use()
    until(lambda: descriptors() <= before, "all descriptors are closed")


def test_queue_in_imported_program_names_the_rule(tmp_path: Path) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(textwrap.dedent("""
        import multiprocessing, tontine

        def work(queue):
            queue.put(1)

        multiprocessing.set_start_method("spawn", force=True)
        queue = tontine.Queue()
        if multiprocessing.current_process().name == "MainProcess":
            process = multiprocessing.Process(target=work, args=(queue,))
            process.start()
            process.join()
        else:
            queue.get()
    """))
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    assert 'under `if __name__ == "__main__":`' in ended.stderr
