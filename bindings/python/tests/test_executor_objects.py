"""Functions, arguments and results of an ``Executor``, and how long they are kept."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from tontine import Executor, Pool, WorkerDied


def square(number: int) -> int:
    return number * number


def leave_mark(folder: str, number: int) -> None:
    """Makes the file of this number one byte longer."""
    with open(Path(folder, str(number)), "ab") as file:
        file.write(b".")


def kill_reader() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """An argument that kills the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return kill_reader, ()


def test_argument_that_kills_its_reader_fails_its_task_only() -> None:
    with Executor(1, retries=1) as executor:
        with pytest.raises(WorkerDied, match="2 workers died of this task"):
            executor.submit(square, Deadly()).result()
    with Pool(1, retries=0) as pool:
        results = pool.imap(type, [1, 2.0, Deadly(), "text"], chunksize=4)
        assert [next(results), next(results)] == [int, float]
        with pytest.raises(WorkerDied, match="^1 worker died"):
            next(results)
        assert next(results) is str


def test_closed_pool_finishes_its_initializers(tmp_path: Path) -> None:
    for number in range(3):
        pool = Pool(2, leave_mark, (str(tmp_path), number))
        pool.close()
        pool.join()
        assert Path(tmp_path, str(number)).stat().st_size == 2


class Tracked:
    """An object whose end a weak reference shows."""


def test_results_and_arguments_are_not_kept() -> None:
    with Executor(1) as executor:
        for tracked in executor.map(make_tracked, range(3)):
            seen = weakref.ref(tracked)
            del tracked
            assert seen() is None
        assert executor.submit(keep, Tracked()).result()
        assert executor.submit(is_gone).result()


def make_tracked(_: int) -> Tracked:
    return Tracked()


_kept: list[weakref.ref[Tracked]] = []


def keep(tracked: Tracked) -> bool:
    _kept.append(weakref.ref(tracked))
    return True


def is_gone() -> bool:
    return _kept[0]() is None


def test_shutdown_ends_while_iterators_are_held() -> None:
    executor = Executor(2)
    held = executor.map(square, range(100), buffersize=4)
    assert next(held) == 0
    executor.map(square, range(100), buffersize=4)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures"):
        list(held)
    executor = Executor(1)
    held = executor.map(square, range(100), buffersize=4)
    executor.shutdown(cancel_futures=True)


def test_tasks_added_at_any_moment_run() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Executor(2) as executor:
            assert list(executor.map(square, range(1500), buffersize=2)) == [
                n * n for n in range(1500)
            ]
    finally:
        sys.setswitchinterval(interval)


def test_arguments_of_finished_tasks_are_freed() -> None:
    alive: weakref.WeakSet[Tracked] = weakref.WeakSet()
    with Executor(1) as executor:
        futures: list[Any] = []
        for _ in range(60):
            tracked = Tracked()
            alive.add(tracked)
            futures.append(executor.submit(type, tracked))
            del tracked
            if len(futures) > 5:
                futures.pop(0).result()
            assert len(alive) < 20


class Counter:
    """A function with state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: object) -> int:
        self.calls += 1
        return self.calls


def test_state_of_function_stays_with_its_task() -> None:
    counter = Counter()
    with Executor(1) as executor:
        assert list(executor.map(counter, range(50))) == [1] * 50
        assert executor.submit(counter, 0).result() == 1
        counter.calls = 5
        assert executor.submit(counter, 0).result() == 6


class Unhashable:
    """A function that cannot be a key."""

    def __hash__(self) -> int:
        raise ValueError("no hash")

    def __call__(self, number: int) -> int:
        return number


def test_function_without_hash_is_called() -> None:
    with Executor(1) as executor:
        assert executor.submit(Unhashable(), 4).result() == 4
