"""``Pool``: the interface of ``multiprocessing.Pool``, on workers that may die."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import TimeoutError as _TimeoutError
from multiprocessing import util
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

from ._crew import Crew
from ._executor import checked_at_least, checked_callable, checked_processes, checked_timeout
from ._runs import All, One, Run, Stream

T = TypeVar("T")
R = TypeVar("R")

#: Maximum number of tasks that an iteration takes from a generator before the caller takes the
#: results, for each worker.
_AHEAD = 64


class AsyncResult(Generic[T]):
    """The result of a call of a pool, which may not be there yet."""

    __module__ = "tontine"

    def __init__(self, run: All, pool: Pool) -> None:
        # The pool lives as long as its results.
        self._run, self._pool, self._crew = run, pool, pool._crew

    def get(self, timeout: float | None = None) -> T:
        """Waits for the result and returns it.

        Raises:
            TimeoutError: It was not there in time.
            Exception: What the call raised.
        """
        self.wait(timeout)
        if not self._run.done():
            raise _TimeoutError
        result: T = self._run.get()
        return result

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the result or an exception is there, or the time is over."""
        if threading.current_thread() is self._crew.thread and not self._run.done():
            raise RuntimeError(
                "a callback cannot wait for its pool, whose thread calls it; start another thread"
            )
        self._run.wait(timeout)

    def ready(self) -> bool:
        """Returns whether the result or an exception is there."""
        return self._run.done()

    def successful(self) -> bool:
        """Returns whether the call raised no exception.

        Raises:
            ValueError: It has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return not self._run.failed()


class ResultIterator(Generic[T]):
    """An iterator over the results of ``imap`` and ``imap_unordered``.

    An exception of a task is raised instead of its result, and the iteration can continue.
    """

    __module__ = "tontine"

    def __init__(self, stream: Stream, pool: Pool) -> None:
        self._stream, self._pool, self._crew = stream, pool, pool._crew

    def next(self, timeout: float | None = None) -> T:
        """Waits for the next result and returns it.

        Raises:
            StopIteration: There are no more results.
            TimeoutError: There was none in time.
            Exception: What the task raised.
        """
        result: T = self._stream.next(timeout, _TimeoutError)
        return result

    __next__ = next

    def __iter__(self) -> Iterator[T]:
        return self

    def close(self) -> None:
        """Ends the iteration: tasks that have not begun do not run."""
        # In a child that this process forked, a thread that is not there may hold a lock.
        if os.getpid() == self._crew.pid:
            self._stream.abandon()
            self._crew.wake()

    __del__ = close


class Pool:
    """Worker processes that call functions, and are replaced when they die.

    It has the interface of ``multiprocessing.Pool``. If a worker dies, another one takes its place,
    and only the task that it ran is repeated. Any thread may use it. Functions, arguments and
    results are pickled. The workers end when the pool is closed, or when its process dies; they may
    start processes of their own.

    Args:
        processes: Number of workers (default: the number of usable processors).
        initializer: A function that each worker calls first.
        initargs: Its arguments.
        maxtasksperchild: Number of tasks after which a worker is replaced.
        context: The start method's context, from ``multiprocessing.get_context``.
        retries: Number of times that a task is repeated whose worker died.
        timeout: Maximum number of seconds that a task may run. The worker of a task that takes
            longer is killed, and the task raises ``TimeoutError``.
        cloudpickle: Pickle with the package ``cloudpickle``.
    """

    __module__ = "tontine"

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: BaseContext | None = None,
        *,
        retries: int = 2,
        timeout: float | None = None,
        cloudpickle: bool = False,
    ) -> None:
        self._processes = checked_processes(processes)
        self._crew = Crew(
            self._processes,
            initializer=checked_callable(initializer),
            initargs=tuple(initargs),
            context=context,
            retries=checked_at_least("retries", retries, 0),
            timeout=checked_timeout(timeout),
            max_tasks=checked_at_least("maxtasksperchild", maxtasksperchild, 1),
            cloudpickle=cloudpickle,
        )
        self._is_closed = False
        # At the end of the program, before its child processes are joined.
        self._finalizer = util.Finalize(self, _finish, (self._crew,), exitpriority=15)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return self._crew.pids()

    def map(
        self, func: Callable[[T], R], iterable: Iterable[T], chunksize: int | None = None
    ) -> list[R]:
        """Calls the function with each argument, and returns the results in the same order.

        Args:
            chunksize: Minimum number of tasks that travel together; by default it is adapted to
                their duration.

        Raises:
            WorkerDied: A task's worker died, and again on each retry.
            BrokenExecutor: Workers end before they are ready.
            Exception: The first exception that the function raised. Tasks that have not begun do
                not run.
        """
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[T], R],
        iterable: Iterable[T],
        chunksize: int | None = None,
        callback: Callable[[list[R]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[R]]:
        """Calls the function like ``map``, and returns a result to wait for.

        The pool's thread calls ``callback`` with the list, or ``error_callback`` with the
        exception.
        """
        return self._all(All(func, "one", iterable, chunksize, callback, error_callback))

    def starmap(
        self,
        func: Callable[..., R],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[R]:
        """Calls the function with the arguments in each iterable, otherwise like ``map``."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., R],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[list[R]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[R]]:
        """Calls the function like ``starmap``, and returns a result like ``map_async``."""
        return self._all(All(func, "star", iterable, chunksize, callback, error_callback))

    def apply(
        self,
        func: Callable[..., R],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
    ) -> R:
        """Calls the function in a worker, and returns its result. Raises like ``map``."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., R],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[R], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[R]:
        """Calls the function in a worker, and returns a result like ``map_async``."""
        arguments = [(tuple(args), dict(kwds or {}))]
        return self._all(One(func, "call", arguments, None, callback, error_callback))

    def imap(
        self, func: Callable[[T], R], iterable: Iterable[T], chunksize: int = 1
    ) -> ResultIterator[R]:
        """Calls the function with each argument, and iterates over the results in the same order.

        A generator is read by a thread of its own, which does not run far ahead of the caller.
        """
        return self._stream(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[T], R], iterable: Iterable[T], chunksize: int = 1
    ) -> ResultIterator[R]:
        """Calls the function with each argument, and iterates over the results as they come."""
        return self._stream(func, iterable, chunksize, ordered=False)

    def close(self) -> None:
        """Accepts no more tasks. The workers end after the last one; ``join`` waits for them."""
        self._is_closed = True
        if os.getpid() == self._crew.pid:
            self._crew.close()

    def terminate(self) -> None:
        """Kills the workers, also in the middle of a task, and waits until they have ended.

        Does nothing in a child that the pool's process forked.
        """
        self._is_closed = True
        if os.getpid() == self._crew.pid:
            self._crew.kill(RuntimeError("the pool was terminated"))
            self._crew.thread.join()
            self._finalizer.cancel()

    def join(self) -> None:
        """Waits until the workers of a closed pool have ended.

        Raises:
            ValueError: The pool is open.
        """
        if not self._is_closed:
            raise ValueError("Pool is still running: call `close` or `terminate` first")
        if os.getpid() == self._crew.pid:
            self._crew.thread.join()
            self._finalizer.cancel()

    def __enter__(self) -> Pool:
        self._check()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and os.getpid() == self._crew.pid:
            warnings.warn(
                f"unclosed pool {self!r}: use it in a `with` statement",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __reduce__(self) -> Any:
        raise NotImplementedError("a pool cannot be passed to another process: open one there")

    def __repr__(self) -> str:
        return f"<tontine.Pool with {len(self.pids)} workers>"

    def _all(self, run: All) -> AsyncResult[Any]:
        self._add(run)
        return AsyncResult(run, self)

    def _stream(
        self, func: Callable[[T], R], iterable: Iterable[T], chunksize: int, *, ordered: bool
    ) -> ResultIterator[R]:
        checked_at_least("chunksize", chunksize, 1)
        size = chunksize if chunksize > 1 else None
        if isinstance(iterable, (list, tuple, range)):
            stream = Stream(func, "one", iterable, size, ordered=ordered)
            self._add(stream)
        else:
            stream = Stream(func, "one", (), size, ordered=ordered, has_source=True, is_read=True)
            self._add(stream)
            ahead = max(_AHEAD, 2 * chunksize) * self._processes
            threading.Thread(
                target=_read, args=(stream, iterable, self._crew, ahead), daemon=True
            ).start()
        return ResultIterator(stream, self)

    def _add(self, run: Run) -> None:
        self._check()
        try:
            self._crew.add(run)
        except RuntimeError as error:
            raise ValueError(f"this pool cannot be used: {error}") from None

    def _check(self) -> None:
        if self._is_closed:
            raise ValueError("Pool not running: this pool is closed; open a new one")
        self._crew.check()


def _read(stream: Stream, iterable: Iterable[Any], crew: Crew, ahead: int) -> None:
    """Adds the items of an iterable to a stream."""
    try:
        for item in iterable:
            if not stream.wait_for_demand(ahead):
                return
            stream.add(item)
            crew.wake()
    except BaseException as error:
        stream.end(error)
    else:
        stream.end()
    crew.wake()


def _finish(crew: Crew) -> None:
    """Kills the workers of an unused pool, or at the end of the program."""
    if os.getpid() == crew.pid:
        crew.kill(RuntimeError("the pool was terminated"))
        if util.is_exiting():
            crew.thread.join()
