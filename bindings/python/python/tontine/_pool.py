"""``Pool``: worker processes that are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ._errors import Closed, Error, NoMailbox, OwnerDied, SenderDied
from ._queue import Empty, Queue

T = TypeVar("T")
R = TypeVar("R")

#: Seconds after which an idle worker checks whether the pool's process lives. Once the pool has
#: connected to the worker, its death ends the worker's wait at once.
_CHECK_AFTER = 1.0


class WorkerDied(RuntimeError):
    """The worker of a task died, as did the workers of its repetitions."""

    __module__ = "tontine"


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker, which the exception has as its cause."""

    __module__ = "tontine"

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _Run:
    """The tasks of one call of a method of the pool."""

    def __init__(self, function: Callable[[Any], Any], arguments: Iterable[Any]) -> None:
        self.function = function
        self.arguments = enumerate(arguments)
        self.exhausted = False
        self.unfinished = 0
        #: True once the caller wants no more results.
        self.closed = False
        #: Results that the caller has not seen: ordinal, value, and exception if there is one.
        self.done: deque[tuple[int, Any, BaseException | None]] = deque()


class _Task:
    def __init__(self, number: int, run: _Run, ordinal: int, argument: Any) -> None:
        #: Number of this task in its pool.
        self.number = number
        self.run = run
        #: Number of its argument in its run.
        self.ordinal = ordinal
        self.argument = argument
        #: Number of workers that died of it.
        self.deaths = 0

    def finish(self, value: Any, error: BaseException | None = None) -> None:
        self.run.unfinished -= 1
        self.run.done.append((self.ordinal, value, error))


class _Worker:
    def __init__(self, process: BaseProcess, tasks: Queue[Any]) -> None:
        self.process = process
        self.tasks = tasks
        self.ready = False
        self.task: _Task | None = None

    def is_idle(self) -> bool:
        """Returns whether the worker may have a task: it works on none that still matters."""
        return self.ready and (self.task is None or self.task.run.closed)


class Pool:
    """Worker processes that call functions, and are replaced when they die.

    Each worker has a queue of its own for its tasks; all workers share one for their results. A
    worker that is killed holds no lock that another process needs. The pool notices its death at
    once, starts another worker, and repeats the task: a task may therefore run more than once.

    A pool belongs to the thread that made it. Functions, arguments and results are pickled. The
    workers end when the pool is closed, or when its process dies.

    Args:
        processes: Number of workers (default: the number of usable processors).
        initializer: A function that each worker calls first.
        initargs: Its arguments.
        retries: Number of times that a task is repeated whose worker died.
        context: The start method's context, from ``multiprocessing.get_context``.
    """

    __module__ = "tontine"

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        *,
        retries: int = 2,
        context: BaseContext | None = None,
    ) -> None:
        if processes is None:
            processes = len(os.sched_getaffinity(0))
        if processes < 1:
            raise ValueError(f"expected at least 1 process, found {processes}")
        self._retries = retries
        self._initializer = (initializer, tuple(initargs))
        self._context: Any = context or multiprocessing.get_context()
        self._pid = os.getpid()
        self._numbers = count()
        self._repeated: deque[_Task] = deque()
        #: Number of workers in succession that ended before they were ready, and its maximum.
        self._failed_starts, self._max_failed_starts = 0, max(3, 2 * processes)
        self._results: Queue[Any] = Queue()
        self._mailbox = self._results.bind()
        self._workers = [self._start() for _ in range(processes)]

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def map(self, function: Callable[[T], R], arguments: Iterable[T]) -> list[R]:
        """Calls the function with each argument, and returns the results in the same order.

        Raises:
            WorkerDied: A task's worker died, and again on each retry.
            RuntimeError: Workers end before they are ready.
            Exception: The first exception that the function raised.
        """
        results = dict(self._results_of(function, arguments))
        return [results[ordinal] for ordinal in range(len(results))]

    def starmap(self, function: Callable[..., R], arguments: Iterable[Iterable[Any]]) -> list[R]:
        """Calls the function with the arguments in each iterable, otherwise like ``map``."""
        return self.map(_Starred(function), arguments)

    def apply(
        self,
        function: Callable[..., R],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
    ) -> R:
        """Calls the function in a worker, and returns its result. Raises like ``map``."""
        result: R = self.map(_Starred(function, dict(kwds or {})), [args])[0]
        return result

    def imap(self, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
        """Calls the function with each argument, and yields the results in the same order.

        The workers receive tasks while the caller iterates. Raises like ``map``.
        """
        return self._in_order(self._results_of(function, arguments))

    def imap_unordered(self, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
        """Calls the function with each argument, and yields each result as soon as it is there.

        The workers receive tasks while the caller iterates. Raises like ``map``.
        """
        return (result for _, result in self._results_of(function, arguments))

    def close(self) -> None:
        """Kills the workers, also in the middle of a task, and waits until they have ended.

        Does nothing in a child that the pool's process forked.
        """
        if os.getpid() != self._pid:
            return
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.tasks.close()
        self._results.close()

    terminate = close

    def join(self) -> None:
        """Returns at once: ``close`` has waited for the workers."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _results_of(
        self, function: Callable[[T], R], arguments: Iterable[T]
    ) -> Iterator[tuple[int, R]]:
        """Returns an iterator over the ordinals of the arguments and their results."""
        if not self._workers:
            raise ValueError("this pool is closed; open a new one")
        return self._iterate(_Run(function, arguments))

    def _iterate(self, run: _Run) -> Iterator[tuple[int, Any]]:
        try:
            while True:
                self._assign(run)
                while run.done:
                    ordinal, value, error = run.done.popleft()
                    if error is not None:
                        raise error
                    yield ordinal, value
                if run.exhausted and not run.unfinished:
                    return
                self._receive()
        finally:
            run.closed = True

    def _in_order(self, results: Iterator[tuple[int, R]]) -> Iterator[R]:
        early: dict[int, R] = {}
        following = 0
        for ordinal, result in results:
            early[ordinal] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def _assign(self, run: _Run) -> None:
        """Sends a task to each idle worker."""
        if not self._workers:
            raise ValueError("this pool is closed; open a new one")
        for worker in self._workers:
            if worker.is_idle():
                if (task := self._next_task(run)) is None:
                    return
                self._send(worker, task)

    def _next_task(self, run: _Run) -> _Task | None:
        while self._repeated:
            task = self._repeated.popleft()
            if not task.run.closed:
                return task
        for ordinal, argument in run.arguments:
            run.unfinished += 1
            return _Task(next(self._numbers), run, ordinal, argument)
        run.exhausted = True
        return None

    def _send(self, worker: _Worker, task: _Task) -> None:
        # The worker unpickles the call for itself, so that it can report a failure.
        call = pickle.dumps((task.run.function, task.argument), pickle.HIGHEST_PROTOCOL)
        worker.task = task
        try:
            worker.tasks.put((task.number, call))
        except (OwnerDied, Closed):
            # `_receive` replaces the worker, and repeats the task.
            pass

    def _receive(self) -> None:
        """Receives a result, or replaces workers that have ended; waits for either."""
        try:
            return self._accept(*self._results.get_nowait())
        except (Empty, SenderDied):
            pass
        ended = [worker for worker in self._workers if not worker.process.is_alive()]
        waits = self._mailbox.arm()
        if not ended:
            if waits:
                sentinels = [worker.process.sentinel for worker in self._workers]
                wait([self._mailbox.fileno(), *sentinels])
            return None
        # Everything that these workers had sent is in the queue now.
        while True:
            try:
                self._accept(*self._results.get_nowait())
            except SenderDied:
                pass
            except Empty:
                break
        for worker in ended:
            self._replace(worker)

    def _accept(
        self, pid: int, number: int | None = None, value: bytes = b"", trace: str | None = None
    ) -> None:
        """Processes a worker's message: it is ready, or has finished a task."""
        worker = next((worker for worker in self._workers if worker.process.pid == pid), None)
        if worker is None:
            return
        if number is None:
            try:
                # From now on, the worker notices at once if this process dies.
                worker.tasks.connect(timeout=0.0)
            except Error:
                # It has died, or this process lacks a resource: another worker takes its place.
                worker.process.kill()
            else:
                self._failed_starts = 0
                worker.ready = True
            return
        task = worker.task
        # Otherwise the caller of that task wants no results any more.
        if task is None or task.number != number:
            return
        worker.task = None
        try:
            result = pickle.loads(value)
        except Exception as error:
            task.finish(None, error)
        else:
            if trace is None:
                task.finish(result)
            else:
                result.__cause__ = RemoteTraceback(trace)
                task.finish(None, result)

    def _replace(self, worker: _Worker) -> None:
        """Starts another worker for one that has ended, and repeats its task."""
        worker.process.join()
        worker.tasks.close()
        status = worker.process.exitcode
        self._workers[self._workers.index(worker)] = self._start()
        if (task := worker.task) is not None:
            task.deaths += 1
            if task.deaths > self._retries:
                text = f"{task.deaths} workers died of this task, the last with exit code {status}"
                task.finish(None, WorkerDied(text))
            else:
                self._repeated.append(task)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= self._max_failed_starts:
                self._failed_starts = 0
                raise RuntimeError(f"workers end before they are ready, with exit code {status}")

    def _start(self) -> _Worker:
        tasks: Queue[Any] = Queue()
        arguments = (tasks, self._results, *self._initializer)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return _Worker(process, tasks)


class _Starred:
    """A function that is called with the arguments in an iterable."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any] | None = None):
        self.function = function
        self.keywords = keywords or {}

    def __call__(self, arguments: Iterable[Any]) -> Any:
        return self.function(*arguments, **self.keywords)


def _work(
    tasks: Queue[Any],
    results: Queue[Any],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> None:
    """Works on tasks until the pool's process ends."""
    # At a terminal, Ctrl-C reaches all processes: the pool's process ends its workers. A handler of
    # the parent for SIGTERM is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pid = os.getpid()
    try:
        tasks.bind()
        results.connect(timeout=0.0)
        if initializer is not None:
            initializer(*initargs)
        results.put((pid,))
        while True:
            try:
                number, call = tasks.get(timeout=_CHECK_AFTER)
            except Empty:
                results.connect().service()
            else:
                _answer(results, pid, number, call)
    except (NoMailbox, OwnerDied, SenderDied, Closed):
        pass


def _answer(results: Queue[Any], pid: int, number: int, call: bytes) -> None:
    """Makes a call, and sends its result or its exception."""
    trace = None
    try:
        function, argument = pickle.loads(call)
        value = pickle.dumps(function(argument), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        trace = traceback.format_exc()
        value = _pickled(error)
    try:
        results.put((pid, number, value, trace))
    except (OwnerDied, Closed):
        raise
    except Error as error:
        results.put((pid, number, _pickled(error), traceback.format_exc()))


def _pickled(error: Exception) -> bytes:
    """Pickles an exception, or its text if the exception itself cannot be pickled."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
        return pickled
    except Exception:
        return pickle.dumps(RuntimeError(repr(error)))
