"""``Pool``, whose workers are killed."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.context import BaseContext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tontine import AsyncResult, Pool, WorkerDied
from waiting import until


def square(number: int) -> int:
    return number * number


def die_once(argument: tuple[str, int]) -> int:
    """Kills its worker at each seventh number, once for each, and leaves its process id."""
    folder, number = argument
    marker = Path(folder, str(number))
    if number % 7 == 0 and not marker.exists():
        marker.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def misbehave(what: str) -> str:
    if what == "raise":
        raise ValueError("as requested")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(3)
    if what == "sys.exit":
        sys.exit("as requested")
    if what == "unpicklable":
        return lambda: None  # type: ignore[return-value]
    if what == "loads badly":
        return LoadsBadly()  # type: ignore[return-value]
    if what == "unpicklable error":
        raise Unpicklable()
    if what == "late":
        raise TimeoutError("of the task")
    return what


class Unpicklable(Exception):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def worker_pid(_: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def test_results_have_the_order_of_arguments(context: BaseContext) -> None:
    with Pool(3, context=context) as pool:
        assert pool.map(square, range(100)) == [number**2 for number in range(100)]
        assert sorted(pool.imap_unordered(square, [3, 1, 2])) == [1, 4, 9]
        assert pool.map(square, []) == []
        assert set(pool.map(worker_pid, range(30))) <= set(pool.pids)


def test_killed_workers_lose_no_task(context: BaseContext, tmp_path: Path) -> None:
    with Pool(2, context=context) as pool:
        arguments = [(str(tmp_path), number) for number in range(30)]
        assert pool.map(die_once, arguments) == list(range(30))
        killed = {int(marker.read_text()) for marker in tmp_path.iterdir()}
        assert len(killed) == 5
        assert len(pool.pids) == 2
        assert killed.isdisjoint(pool.pids)


def test_worker_killed_from_outside_is_replaced(context: BaseContext) -> None:
    with Pool(2, context=context) as pool:
        results = pool.imap_unordered(worker_pid, range(50))
        first = next(results)
        os.kill(first, signal.SIGKILL)
        assert len(list(results)) == 49
        assert first not in pool.pids


def test_task_that_kills_each_worker_is_given_up(context: BaseContext) -> None:
    with Pool(2, retries=1, context=context) as pool:
        with pytest.raises(WorkerDied, match="2 workers died of this task.*exit code -9"):
            pool.map(misbehave, ["fine", "die", "fine"])
        with pytest.raises(WorkerDied, match="exit code 3"):
            pool.map(misbehave, ["exit"])
        assert pool.map(misbehave, ["fine"] * 3) == ["fine"] * 3


def test_exception_of_function_is_raised(context: BaseContext) -> None:
    with Pool(2, context=context) as pool:
        with pytest.raises(ValueError, match="as requested") as raised:
            pool.map(misbehave, ["fine", "raise"])
        assert "in misbehave" in str(raised.value.__cause__)
        with pytest.raises(RuntimeError, match="Unpicklable"):
            pool.map(misbehave, ["unpicklable error"])
        with pytest.raises(TimeoutError, match="of the task") as late:
            next(pool.imap(misbehave, ["late"]))
        assert "in misbehave" in str(late.value.__cause__)
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pool.map(misbehave, ["unpicklable"])
        assert pool.map(misbehave, ["fine"]) == ["fine"]


def echo(argument: object) -> object:
    return argument


class LoadsBadly:
    """An object that is pickled, but raises an exception when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (int, ("not a number",))


def test_large_arguments_and_results_pass(context: BaseContext) -> None:
    with Pool(3, context=context) as pool:
        for count, size in ((12, 200_000), (6, 20_000_000)):
            arguments = [bytes([number]) * size for number in range(count)]
            assert pool.map(echo, arguments) == arguments


def test_object_that_cannot_be_unpickled_fails_its_task_only(context: BaseContext) -> None:
    with Pool(2, context=context) as pool:
        pids = pool.pids
        with pytest.raises(ValueError, match="not a number"):
            pool.map(echo, [1, LoadsBadly(), 2])
        with pytest.raises(ValueError, match="not a number"):
            pool.map(misbehave, ["loads badly"])
        for _ in range(5):
            assert pool.map(echo, "abcdef") == list("abcdef")
        assert pool.pids == pids


def test_results_stay_right_after_interrupted_calls() -> None:
    class Interrupted(BaseException):
        pass

    fired: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        while frame is not None and Path(frame.f_code.co_filename).name != "_pool.py":
            frame = frame.f_back
        if frame is None:
            # At the edge of a statement, CPython would raise the exception outside of it.
            signal.setitimer(signal.ITIMER_REAL, 0.0001)
            return
        fired.append(number)
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with Pool(3) as pool:
            for delay in range(1, 40):
                with contextlib.suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, delay * 0.0003)
                    while len(fired) < delay:
                        pool.map(echo, range(10_000))
                arguments = [(delay, number) for number in range(20)]
                assert pool.map(echo, arguments) == arguments
    finally:
        signal.signal(signal.SIGALRM, before)


def test_tasks_are_spread_over_all_workers(context: BaseContext, tmp_path: Path) -> None:
    with Pool(4, context=context) as pool:
        assert set(pool.map(meet, [(str(tmp_path), 4)] * 4)) == set(pool.pids)


def meet(argument: tuple[str, int]) -> int:
    """Waits until it runs in this number of workers at the same time."""
    folder, count = Path(argument[0]), argument[1]
    folder.joinpath(str(os.getpid())).touch()
    until(lambda: len(list(folder.iterdir())) == count, f"{count} workers")
    return os.getpid()


def test_close_ends_stopped_and_deaf_workers(context: BaseContext) -> None:
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        with Pool(2, context=context) as pool:
            pool.map(echo, range(4))
            os.kill(pool.pids[0], signal.SIGSTOP)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_pool_continues_after_failed_starts(context: BaseContext, tmp_path: Path) -> None:
    marker = tmp_path / "works"
    with Pool(1, exit_unless, (str(marker),), context=context) as pool:
        with pytest.raises(RuntimeError, match="before they are ready, with exit code 4"):
            pool.map(echo, [1])
        marker.touch()
        assert pool.map(echo, [2]) == [2]


def exit_unless(marker: str) -> None:
    if not os.path.exists(marker):
        os._exit(4)


def test_forked_child_leaves_pool_alone() -> None:
    with Pool(2) as pool:
        pool.map(echo, range(4))
        child = os.fork()
        if child == 0:
            pool.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        pids = pool.pids
        assert pool.map(echo, range(4)) == list(range(4))
        assert pool.pids == pids


def test_other_methods_call_like_map() -> None:
    with Pool(2) as pool:
        assert list(pool.imap(square, range(20))) == [number**2 for number in range(20)]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert pool.apply(sorted, ([3, 1, 2],), {"reverse": True}) == [3, 2, 1]
        pool.terminate()
        pool.join()
        for call in (pool.imap, pool.imap_unordered, pool.map):
            with pytest.raises(ValueError, match="pool is closed"):
                call(square, [1])


def test_abandoned_results_do_not_mix_with_later_ones() -> None:
    with Pool(2) as pool:
        first = pool.imap_unordered(square, range(100))
        next(first)
        second = pool.imap_unordered(square, range(100, 110))
        assert sorted(second) == [number**2 for number in range(100, 110)]
        first.close()
        assert pool.map(square, [5]) == [25]


def test_closed_pool_refuses_work() -> None:
    pool = Pool(1)
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="pool is closed"):
        pool.map(square, [1])
    with pytest.raises(ValueError, match="at least 1 process"):
        Pool(0)


def test_workers_that_cannot_start_are_reported(context: BaseContext, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, tontine\n"
        "if __name__ != '__main__': os._exit(5)\n"
        "import multiprocessing\n"
        "with tontine.Pool(1, context=multiprocessing.get_context('spawn')) as pool:\n"
        "    pool.map(abs, [1])\n"
    )
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert "workers end before they are ready, with exit code 5" in ended.stderr


@pytest.mark.parametrize("moment", ["idle", "busy", "starting"])
def test_workers_end_when_their_pool_is_killed(tmp_path: Path, moment: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time, tontine\n"
        "def work(_):\n"
        # One write: an unbuffered `print` makes two, between which another worker may write.
        "    os.write(1, b'works\\n')\n"
        "    time.sleep(0.05)\n"
        "if __name__ == '__main__':\n"
        "    pool = tontine.Pool(2)\n"
        f"    if {moment == 'idle'}: pool.map(work, range(4))\n"
        "    print(*pool.pids, flush=True)\n"
        f"    if {moment == 'busy'}: pool.map(work, range(10000))\n"
        "    time.sleep(100)\n"
    )
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        pids = next(line for line in lines if line != "works\n").split()
        if moment == "busy":
            assert next(lines) == "works\n"
        process.kill()
    until(lambda: not any(is_alive(int(pid)) for pid in pids), "the workers to end")


def is_alive(pid: int) -> bool:
    """Returns whether a process runs: a container without init keeps orphans as zombies."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def raise_at_five(number: int) -> int:
    if number == 5:
        raise ValueError(number)
    return number


def drained(results: Iterator[int]) -> list[object]:
    """Returns the results of an iterator, with the exceptions among them."""
    found: list[object] = []
    while True:
        try:
            found.append(next(results))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


def test_iteration_goes_on_after_exception() -> None:
    expected = [0, 1, 2, 3, 4, "5", 6, 7, 8, 9]
    with Pool(2) as pool:
        assert drained(pool.imap(raise_at_five, range(10))) == expected
        unordered = drained(pool.imap_unordered(raise_at_five, range(10), chunksize=3))
        assert sorted(unordered, key=str) == sorted(expected, key=str)


def test_calls_during_iteration_do_not_disturb_it() -> None:
    with Pool(1) as pool:
        squares = [pool.apply(square, (number,)) for number in pool.imap(square, range(20))]
        assert squares == [number**4 for number in range(20)]
        pairs = list(zip(pool.imap(square, range(9)), pool.imap(square, range(9))))
        assert pairs == [(number**2, number**2) for number in range(9)]
        half = pool.imap(square, range(10))
        assert next(half) == 0
        assert pool.map(square, range(3)) == [0, 1, 4]
        assert list(half) == [number**2 for number in range(1, 10)]


def test_results_arrive_while_source_waits() -> None:
    goes_on = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        assert goes_on.wait(60)
        yield 2

    with Pool(2) as pool:
        results = pool.imap_unordered(square, source())
        assert next(results) == 1
        goes_on.set()
        assert list(results) == [4]


def test_source_is_not_read_far_ahead() -> None:
    drawn: list[int] = []

    def source() -> Iterator[int]:
        for number in count():
            drawn.append(number)
            yield number

    with Pool(1) as pool:
        results = pool.imap(square, source())
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
        results.close()
        assert pool.map(square, range(3)) == [0, 1, 4]
        assert len(drawn) < 200


def test_exception_of_source_ends_iteration() -> None:
    def source() -> Iterator[int]:
        yield 3
        raise KeyError("source")

    with Pool(1) as pool:
        results = pool.imap(square, source())
        assert next(results) == 9
        with pytest.raises(KeyError, match="source"):
            next(results)
        assert list(results) == []


def test_asynchronous_calls_report_to_callbacks() -> None:
    done: list[object] = []
    with Pool(2) as pool:
        calls: list[AsyncResult[Any]] = [
            pool.apply_async(pow, (2,), {"exp": 3}, callback=done.append),
            pool.map_async(square, [1, 2], callback=done.append),
            pool.starmap_async(pow, [(2, 2)], callback=done.append),
            pool.map_async(square, [], callback=done.append),
        ]
        assert [call.get(60) for call in calls] == [8, [1, 4], [4], []]
        assert all(call.ready() and call.successful() for call in calls)
        failed = pool.apply_async(divmod, (1, 0), error_callback=done.append)
        failed.wait(60)
        assert not failed.successful()
        with pytest.raises(ZeroDivisionError):
            failed.get()
    assert sorted(str(one) for one in done[:4]) == ["8", "[1, 4]", "[4]", "[]"]
    assert isinstance(done[4], ZeroDivisionError)


def test_waits_for_results_time_out(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Pool(1) as pool:
        call = pool.apply_async(wait_for, (str(gate),))
        with pytest.raises(multiprocessing.TimeoutError):
            call.get(0.01)
        with pytest.raises(ValueError, match="not ready"):
            call.successful()
        results = pool.imap(wait_for, [str(gate)])
        with pytest.raises(multiprocessing.TimeoutError):
            results.next(0.01)
        gate.touch()
        assert call.get() == results.next() == str(gate)


def wait_for(path: str) -> str:
    until(lambda: os.path.exists(path), "the test continues", 60)
    return path


def test_callback_that_waits_for_its_pool_is_refused() -> None:
    refused: list[str] = []
    with Pool(1) as pool:

        def wait_here(_: object) -> None:
            try:
                pool.map(square, [1])
            except RuntimeError as error:
                refused.append(str(error))

        pool.apply_async(square, (2,), callback=wait_here).get()
    assert "a callback cannot wait for its pool" in refused[0]


def test_closed_pool_finishes_its_tasks() -> None:
    pool = Pool(2)
    call = pool.map_async(square, range(1000))
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pids = pool.pids
    pool.close()
    pool.join()
    assert call.get() == [number**2 for number in range(1000)]
    assert not any(is_alive(pid) for pid in pids)


def test_abandoned_call_does_not_block_later_ones(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Pool(2) as pool:
        with pytest.raises(ValueError):
            pool.map(fail_or_wait, ["fail", str(gate)])
        assert pool.map(square, range(4)) == [0, 1, 4, 9]
        gate.touch()


def fail_or_wait(path: str) -> None:
    if path == "fail":
        raise ValueError("as requested")
    wait_for(path)


def test_unclosed_pool_warns() -> None:
    pool = Pool(1)
    pids = pool.pids
    with pytest.warns(ResourceWarning, match="unclosed pool"):
        del pool
        gc.collect()
    until(lambda: not any(is_alive(pid) for pid in pids), "the workers end")


def test_worker_is_replaced_after_its_tasks() -> None:
    with Pool(1, maxtasksperchild=2) as pool:
        pids = pool.map(worker_pid, range(6))
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]


def test_closed_pool_reads_its_sources_to_the_end() -> None:
    pool = Pool(1)
    results = pool.imap(square, iter(range(500)))
    pool.close()
    pool.join()
    assert list(results) == [number**2 for number in range(500)]


def test_results_keep_their_pool() -> None:
    assert Pool(1).map_async(square, range(3)).get() == [0, 1, 4]
    assert list(Pool(1).imap(square, range(3))) == [0, 1, 4]
    gc.collect()


def test_forked_child_may_drop_an_iteration() -> None:
    with Pool(1) as pool:
        for _ in range(20):
            results: Any = pool.imap(square, iter(range(50)))
            next(results)
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                del results
                gc.collect()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
