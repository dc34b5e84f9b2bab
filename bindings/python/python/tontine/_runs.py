"""Runs: the tasks of one call of an executor or a pool, and their results."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any

#: Number of tasks that were taken and are still in the list, at most.
_MAX_PASSED = 10_000

#: Mark of a result that has not arrived.
_MISSING: Any = object()


@contextmanager
def _reported() -> Iterator[None]:
    """Prints an exception of a callback: the crew's thread continues."""
    try:
        yield
    except BaseException:
        traceback.print_exc()


class Pace:
    """How long the tasks of a function take."""

    def __init__(self) -> None:
        #: Seconds that a task takes, or ``None`` before the first result.
        self.cost: float | None = None
        #: Number of tasks that travelled together most recently.
        self.batch_size = 0

    def count(self, seconds: float) -> None:
        """Takes the seconds that a task took."""
        self.cost = seconds if self.cost is None else (self.cost + seconds) / 2


class Run:
    """Tasks that call one function, each with arguments of its own.

    The crew's thread takes tasks and delivers their results; a subclass handles these.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        form: str,
        arguments: Iterable[Any] = (),
        chunksize: int | None = None,
    ) -> None:
        self.function = function
        #: How a task's arguments are passed: see ``run_tasks``.
        self.form = form
        #: Minimum number of tasks that travel together; ``None`` adapts it to their duration.
        self.chunksize = chunksize
        #: The function, once it is pickled.
        self.pickled: bytes | None = None
        #: How long the tasks take. Runs of the same function share it.
        self.pace = Pace()
        #: True once no caller wants the results: tasks that have not begun do not run.
        self.abandoned = False
        #: Number of workers that died of a task, by the index of the task.
        self.deaths: dict[int, int] = {}
        self._arguments = list(arguments)
        #: Number of tasks that were taken, and of those that are still in the list.
        self._next = self._passed = 0

    def __len__(self) -> int:
        """Returns the number of tasks that can be taken now."""
        return len(self._arguments) - self._passed

    def is_over(self) -> bool:
        """Returns whether no more task will come."""
        return not len(self)

    def take(self, count: int) -> tuple[int, list[Any]]:
        """Takes tasks, and returns the index of the first and the arguments of all."""
        first, begin = self._next, self._passed
        taken = self._arguments[begin : begin + count]
        # The list does not keep what has been taken.
        self._arguments[begin : begin + len(taken)] = [None] * len(taken)
        self._next += len(taken)
        self._passed += len(taken)
        if self._passed >= _MAX_PASSED or not len(self):
            del self._arguments[: self._passed]
            self._passed = 0
        return first, taken

    def close_source(self) -> None:
        """Takes notice that no more tasks are accepted."""

    def drop(self) -> None:
        """Drops the tasks that have not been taken."""
        self._arguments, self._passed = [], 0

    def deliver(self, index: int, values: list[Any]) -> None:
        """Takes the results of successive tasks, beginning with this one."""
        raise NotImplementedError

    def fail(self, index: int, error: BaseException) -> None:
        """Takes the exception of a task."""
        raise NotImplementedError

    def cancel(self, error: BaseException) -> None:
        """Ends the run with an exception, unless it has ended."""
        raise NotImplementedError

    def cancel_pending(self) -> None:
        """Cancels the tasks that have not been taken."""
        self.cancel(CancelledError())


class Call:
    """One call, whose result goes to a future."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
        self.function = function
        self.arguments = (args, kwargs)
        self.future: Future[Any] = Future()


class Calls(Run):
    """Successive calls of one function, each with a future."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, "call")
        self._futures: dict[int, Future[Any]] = {}
        self._added = 0

    def add(self, call: Call) -> None:
        """Adds a call."""
        self._futures[self._added] = call.future
        self._arguments.append(call.arguments)
        self._added += 1

    def take(self, count: int) -> tuple[int, list[Any]]:
        # The tasks that travel together have successive indices: a cancelled one ends them.
        ready = 0
        while ready < min(count, len(self)):
            index = self._next + ready
            if self._futures[index].set_running_or_notify_cancel():
                ready += 1
                continue
            del self._futures[index]
            first, arguments = super().take(ready)
            super().take(1)
            if arguments:
                return first, arguments
        return super().take(ready)

    def deliver(self, index: int, values: list[Any]) -> None:
        for position, value in enumerate(values, index):
            with _reported():
                self._futures.pop(position).set_result(value)

    def fail(self, index: int, error: BaseException) -> None:
        with _reported():
            self._futures.pop(index).set_exception(error)

    def cancel(self, error: BaseException) -> None:
        self.drop()
        while self._futures:
            _, future = self._futures.popitem()
            with _reported():
                if future.running() or future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def cancel_pending(self) -> None:
        self.drop()
        for index in range(self._next, self._added):
            future = self._futures.pop(index)
            with _reported():
                future.cancel()
                future.set_running_or_notify_cancel()


class All(Run):
    """Tasks whose caller waits for all results, or the first exception."""

    def __init__(
        self,
        function: Callable[..., Any],
        form: str,
        arguments: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> None:
        super().__init__(function, form, arguments, chunksize)
        self._callback, self._error_callback = callback, error_callback
        self._values: list[Any] = [None] * len(self)
        self._missing = len(self)
        self._error: BaseException | None = None
        self._done = threading.Event()
        if not self._missing:
            self._end()

    def deliver(self, index: int, values: list[Any]) -> None:
        self._values[index : index + len(values)] = values
        self._missing -= len(values)
        if not self._missing and not self._done.is_set():
            self._end()

    def fail(self, index: int, error: BaseException) -> None:
        self.cancel(error)

    def cancel(self, error: BaseException) -> None:
        if self._done.is_set():
            return
        self._error = error
        self.abandoned = True
        self.drop()
        self._end()

    def _end(self) -> None:
        try:
            if self._error is None and self._callback is not None:
                self._callback(self.result())
            elif self._error is not None and self._error_callback is not None:
                self._error_callback(self._error)
        except BaseException:
            # The crew's thread continues.
            traceback.print_exc()
        self._done.set()

    def result(self) -> Any:
        """Returns the results, once all are there."""
        return self._values

    def done(self) -> bool:
        """Returns whether all results are there, or an exception."""
        return self._done.is_set()

    def failed(self) -> bool:
        """Returns whether there is an exception."""
        return self._error is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run is done, and returns whether it is."""
        return self._done.wait(timeout)

    def get(self) -> Any:
        """Returns the results of a run that is done, or raises its exception."""
        if self._error is not None:
            raise self._error
        return self.result()


class One(All):
    """A single task."""

    def result(self) -> Any:
        return self._values[0]


class Stream(Run):
    """Tasks whose results the caller takes one by one, each as soon as it is there.

    Args:
        ordered: Whether results have the order of the tasks.
        has_source: Whether tasks are added until ``end`` is called.
        is_read: Whether a thread of the pool adds them, which reads a source to its end.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        form: str,
        arguments: Iterable[Any] = (),
        chunksize: int | None = None,
        *,
        ordered: bool,
        has_source: bool = False,
        is_read: bool = False,
    ) -> None:
        super().__init__(function, form, arguments, chunksize)
        self._changed = threading.Condition()
        self._ordered = ordered
        #: Results that the caller has not taken: by index, or as they came.
        self._by_index: dict[int, Any] = {}
        self._arrived: deque[Any] = deque()
        #: Number of tasks that were added, and of results that the caller has taken.
        self._added = len(self)
        self._taken = 0
        self._has_source, self._is_read = has_source, is_read
        #: True once the pool or the executor accepts no more tasks.
        self._is_closing = False
        self._cancelled: BaseException | None = None

    def is_over(self) -> bool:
        return not self._has_source and super().is_over()

    def add(self, argument: Any) -> None:
        """Adds a task."""
        with self._changed:
            if self._is_closing and not self._is_read:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._arguments.append(argument)
            self._added += 1

    def close_source(self) -> None:
        with self._changed:
            self._is_closing = True
            # The caller adds no more; a thread adds the rest.
            self._has_source = self._has_source and self._is_read
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the source, by an exception that it raised or as usual."""
        with self._changed:
            if error is not None:
                self._put(self._added, _Failure(error))
                self._added += 1
            self._has_source = False
            self._changed.notify_all()

    def wait_for_demand(self, ahead: int) -> bool:
        """Waits until the caller has taken all results but ``ahead``; false if it has gone."""
        with self._changed:
            while self._added - self._taken >= ahead and not (self.abandoned or self._is_closing):
                self._changed.wait()
        return not self.abandoned

    def take(self, count: int) -> tuple[int, list[Any]]:
        with self._changed:
            return super().take(count)

    def drop(self) -> None:
        with self._changed:
            super().drop()

    def deliver(self, index: int, values: list[Any]) -> None:
        with self._changed:
            if self._ordered:
                self._by_index.update(enumerate(values, index))
            else:
                self._arrived.extend(values)
            self._changed.notify_all()

    def fail(self, index: int, error: BaseException) -> None:
        with self._changed:
            self._put(index, _Failure(error))
            self._changed.notify_all()

    def _put(self, index: int, result: Any) -> None:
        if self._ordered:
            self._by_index[index] = result
        else:
            self._arrived.append(result)

    def cancel(self, error: BaseException) -> None:
        with self._changed:
            self._cancelled = error
            self.abandoned = True
            self.drop()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Tells that the caller takes no more results."""
        with self._changed:
            self.abandoned = True
            self._changed.notify_all()

    def next(self, timeout: float | None, late: type[Exception]) -> Any:
        """Returns the next result, or raises its exception.

        Raises:
            StopIteration: There are no more results.
            late: There was no result in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while (result := self._pop()) is _MISSING:
                if self._taken == self._added and not self._has_source:
                    raise StopIteration
                if self._cancelled is not None:
                    raise self._cancelled
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise late
                self._changed.wait(left)
            self._taken += 1
            if self._has_source:
                self._changed.notify_all()
        if type(result) is _Failure:
            if isinstance(result.error, StopIteration):
                # It would end the iteration, as if there were no more results.
                raise RuntimeError("a task raised StopIteration") from result.error
            raise result.error
        return result

    def _pop(self) -> Any:
        if self._ordered:
            return self._by_index.pop(self._taken, _MISSING)
        return self._arrived.popleft() if self._arrived else _MISSING


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
