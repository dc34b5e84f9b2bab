"""``Executor``: the interface of ``concurrent.futures``, on workers that may die."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import Executor as _Executor
from concurrent.futures import TimeoutError as _TimeoutError
from multiprocessing import util
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from ._crew import Crew
from ._runs import Call, Stream

T = TypeVar("T")


class Executor(_Executor):
    """Runs calls in worker processes, and survives the deaths of these.

    It has the interface of ``concurrent.futures.ProcessPoolExecutor``. If a worker dies, another
    one takes its place, and only the task that it ran is repeated: after ``retries`` repetitions
    its future raises ``WorkerDied``, which names the function and the argument. No other task is
    lost, and no other task runs twice.

    A ``with`` statement waits for all tasks at its end; if Ctrl-C ends it, it kills the workers.
    Any thread may use it, and ``asyncio`` with ``loop.run_in_executor``. Functions, arguments and
    results are pickled. The workers end with the process that made the executor, also if it is
    killed, and may start processes of their own.

    Args:
        max_workers: Number of workers (default: the number of usable processors).
        mp_context: The start method's context, from ``multiprocessing.get_context``.
        initializer: A function that each worker calls first.
        initargs: Its arguments.
        max_tasks_per_child: Number of tasks after which a worker is replaced.
        retries: Number of times that a task is repeated whose worker died.
        timeout: Maximum number of seconds that a task may run. The worker of a task that takes
            longer is killed, and its future raises ``TimeoutError``.
        cloudpickle: Pickle with the package ``cloudpickle``, which also passes functions that have
            no name, or are defined in ``__main__``.
    """

    __module__ = "tontine"

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        retries: int = 2,
        timeout: float | None = None,
        cloudpickle: bool = False,
    ) -> None:
        self._crew = Crew(
            checked_processes(max_workers),
            initializer=checked_callable(initializer),
            initargs=tuple(initargs),
            context=mp_context,
            retries=checked_at_least("retries", retries, 0),
            timeout=checked_timeout(timeout),
            max_tasks=checked_at_least("max_tasks_per_child", max_tasks_per_child, 1),
            cloudpickle=cloudpickle,
        )
        # At the end of the program, before its child processes are joined.
        self._finalizer = util.Finalize(self, _finish, (self._crew,), exitpriority=10)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return self._crew.pids()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Schedules a call in a worker, and returns the future of its result.

        The future raises:
            WorkerDied: The task's worker died, and again on each repetition.
            TimeoutError: The task took longer than the executor's ``timeout``.
            BrokenExecutor: Workers end before they are ready.
            Exception: What the function raised, with the worker's traceback as its cause.

        Raises:
            RuntimeError: The executor was shut down, or belongs to another process.
        """
        call = Call(fn, args, kwargs)
        self._add(call)
        return call.future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Calls a function with the items of iterables, and yields the results in their order.

        Tasks that are small travel together. If the caller abandons the iterator, tasks that have
        not begun do not run.

        Args:
            timeout: Seconds from this call within which each result must be there.
            chunksize: Minimum number of tasks that travel together.
            buffersize: Maximum number of tasks whose results the caller has not taken; items are
                then taken from the iterables as results are taken. By default all are taken now.

        Raises:
            The exceptions of ``submit`` and of its futures, for the first task that has failed.
        """
        checked_at_least("chunksize", chunksize, 1)
        checked_at_least("buffersize", buffersize, 1)
        deadline = None if timeout is None else time.monotonic() + timeout
        arguments = zip(*iterables)
        first = itertools.islice(arguments, buffersize)
        has_source = buffersize is not None
        size = chunksize if chunksize > 1 else None
        stream = Stream(fn, "star", first, size, ordered=True, has_source=has_source)
        self._add(stream)
        return _results(self._crew, stream, arguments if has_source else None, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more tasks; the workers end after the last one.

        Args:
            wait: Return only after the workers have ended.
            cancel_futures: Cancel the tasks that have not been sent to a worker.
        """
        if os.getpid() != self._crew.pid:
            return
        self._crew.close(cancel_futures)
        if wait:
            self._crew.thread.join()
            self._finalizer.cancel()

    def kill_workers(self) -> None:
        """Kills the workers, and shuts the executor down. Unfinished futures are cancelled."""
        if os.getpid() != self._crew.pid:
            return
        self._crew.kill(CancelledError("the workers were killed"))
        self._crew.thread.join()
        self._finalizer.cancel()

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        # Workers ignore Ctrl-C, and their tasks would continue.
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill_workers()
        else:
            self.shutdown()

    def _add(self, run: Any) -> None:
        try:
            self._crew.add(run)
        except RuntimeError as error:
            raise RuntimeError(f"cannot schedule new futures: {error}") from None

    def __repr__(self) -> str:
        return f"<tontine.Executor with {len(self.pids)} workers>"


def _results(
    crew: Crew, stream: Stream, source: Iterator[Any] | None, deadline: float | None
) -> Iterator[Any]:
    try:
        while True:
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                result = [stream.next(left, _TimeoutError)]
            except StopIteration:
                return
            if source is not None:
                try:
                    stream.add(next(source))
                except StopIteration:
                    stream.end()
                    source = None
                crew.wake()
            # The caller alone refers to it.
            yield result.pop()
    finally:
        # In a child that this process forked, a thread that is not there may hold a lock.
        if os.getpid() == crew.pid:
            stream.abandon()
            crew.wake()


def _finish(crew: Crew) -> None:
    """Lets the workers of an unused executor end; waits at the end of the program."""
    if os.getpid() == crew.pid:
        crew.close()
        if util.is_exiting():
            crew.thread.join()


def checked_processes(processes: int | None) -> int:
    """Returns the number of workers."""
    if processes is None:
        return len(os.sched_getaffinity(0))
    if processes < 1:
        raise ValueError(
            f"the number of workers must be greater than 0: expected at least 1 process, found "
            f"{processes}"
        )
    return processes


def checked_at_least(name: str, value: Any, least: int) -> Any:
    """Returns a parameter, which may be ``None``."""
    if value is not None and (not isinstance(value, int) or value < least):
        raise ValueError(f"expected {name} to be at least {least}, found {value!r}")
    return value


def checked_timeout(timeout: float | None) -> float | None:
    """Returns the timeout of a task."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"expected a timeout of more than 0 seconds, found {timeout}")
    return timeout


def checked_callable(initializer: Callable[..., object] | None) -> Callable[..., object] | None:
    """Returns the initializer."""
    if initializer is not None and not callable(initializer):
        raise TypeError(f"expected an initializer that can be called, found {initializer!r}")
    return initializer
