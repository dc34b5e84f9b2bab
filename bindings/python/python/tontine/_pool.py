"""``Pool``: worker processes that are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from ._errors import Closed, Error, NoMailbox, OwnerDied, SenderDied
from ._queue import Empty, Queue

T = TypeVar("T")
R = TypeVar("R")

#: Maximum number of tasks that a worker has at a time: the one in work and those that follow.
_MAX_HELD = 4

#: Maximum number of workers in succession that die before they are ready.
_MAX_FAILED_STARTS = 3

#: Seconds after which an idle worker checks whether the pool's process lives. Once the pool has
#: connected to the worker, its death ends the worker's wait at once.
_CHECK_AFTER = 1.0


class WorkerDied(RuntimeError):
    """The worker of a task died, as did the workers of its repetitions."""


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker, which the exception has as its cause."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass
class _Run:
    """The tasks of one call of ``map`` or ``imap_unordered``."""

    function: Callable[[Any], Any]
    arguments: Iterator[tuple[int, Any]]
    unfinished: int = 0
    exhausted: bool = False
    #: True once the caller wants no more results.
    closed: bool = False
    #: Results that the caller has not seen: ordinal, value, and exception if there is one.
    done: deque[tuple[int, Any, BaseException | None]] = field(default_factory=deque)


@dataclass
class _Task:
    run: _Run
    ordinal: int
    argument: Any
    deaths: int = 0

    def finish(self, value: Any, error: BaseException | None = None) -> None:
        self.run.unfinished -= 1
        self.run.done.append((self.ordinal, value, error))


@dataclass
class _Worker:
    process: BaseProcess
    tasks: Queue[Any]
    ready: bool = False
    ended: bool = False
    #: The tasks that this worker has, in the order in which it works on them.
    held: deque[_Task] = field(default_factory=deque)


class Pool:
    """Worker processes that call functions, and are replaced when they die.

    Each worker has a queue of its own for its tasks; all workers share one for their results. A
    worker that is killed holds no lock that another process needs. The pool notices its death at
    once, starts another worker, and repeats the task: a task may therefore run more than once.

    A pool belongs to the thread that made it. Functions, arguments and results are pickled. The
    workers end when the pool is closed, or when its process dies.

    Args:
        processes: Number of workers (default: the number of usable processors).
        retries: Number of times that a task is repeated whose worker died.
        context: The start method's context, from ``multiprocessing.get_context``.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        retries: int = 2,
        context: BaseContext | None = None,
    ) -> None:
        if processes is None:
            processes = len(os.sched_getaffinity(0))
        if processes < 1:
            raise ValueError(f"expected at least 1 process, found {processes}")
        self._retries = retries
        self._context: Any = context or multiprocessing.get_context()
        self._repeated: deque[_Task] = deque()
        self._failed_starts = 0
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
            RuntimeError: Workers die before they are ready.
            Exception: The first exception that the function raised.
        """
        results = dict(self._results_of(function, arguments))
        return [results[ordinal] for ordinal in range(len(results))]

    def imap_unordered(self, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
        """Calls the function with each argument, and yields each result as soon as it is there.

        Raises the exceptions of ``map``.
        """
        for _, result in self._results_of(function, arguments):
            yield result

    def close(self) -> None:
        """Ends the workers, also in the middle of a task, and waits until they have ended."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.tasks.close()
        self._workers = []
        self._results.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _results_of(
        self, function: Callable[[T], R], arguments: Iterable[T]
    ) -> Iterator[tuple[int, R]]:
        run = _Run(function, enumerate(arguments))
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

    def _assign(self, run: _Run) -> None:
        """Sends tasks to the workers that are ready for more."""
        if not self._workers:
            raise ValueError("this pool is closed; open a new one")
        for held in range(_MAX_HELD):
            for worker in self._workers:
                if not worker.ready or worker.ended or len(worker.held) > held:
                    continue
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
            return _Task(run, ordinal, argument)
        run.exhausted = True
        return None

    def _send(self, worker: _Worker, task: _Task) -> None:
        try:
            worker.tasks.put((task.run.function, task.argument))
        except (OwnerDied, Closed):
            # `_receive` replaces the worker once its results are received.
            worker.ended = True
            self._repeated.appendleft(task)
        except BaseException:
            task.run.unfinished -= 1
            raise
        else:
            worker.held.append(task)

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
        self,
        pid: int,
        value: Any = None,
        error: BaseException | None = None,
        trace: str | None = None,
    ) -> None:
        """Processes a worker's message: it is ready, or has finished a task."""
        worker = next((worker for worker in self._workers if worker.process.pid == pid), None)
        if worker is None:
            return
        if not worker.ready:
            self._failed_starts = 0
            worker.ready = True
            try:
                # From now on, the worker notices at once if this process dies.
                worker.tasks.connect(timeout=0.0)
            except Error:
                worker.ended = True
            return
        if error is not None and trace is not None:
            error.__cause__ = RemoteTraceback(trace)
        worker.held.popleft().finish(value, error)

    def _replace(self, worker: _Worker) -> None:
        """Starts another worker for one that has ended, and repeats its tasks."""
        worker.process.join()
        worker.tasks.close()
        status = worker.process.exitcode
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise RuntimeError(f"workers end before they are ready, with exit code {status}")
        self._workers[self._workers.index(worker)] = self._start()
        if worker.held:
            task = worker.held[0]
            task.deaths += 1
            if task.deaths > self._retries:
                worker.held.popleft()
                text = f"{task.deaths} workers died of this task, the last with exit code {status}"
                task.finish(None, WorkerDied(text))
        self._repeated.extendleft(reversed(worker.held))

    def _start(self) -> _Worker:
        tasks: Queue[Any] = Queue()
        process = self._context.Process(target=_work, args=(tasks, self._results), daemon=True)
        process.start()
        return _Worker(process, tasks)


def _work(tasks: Queue[Any], results: Queue[Any]) -> None:
    """Works on tasks until the pool's process ends."""
    # At a terminal, Ctrl-C reaches all processes: the pool's process ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        tasks.bind()
        results.connect(timeout=0.0)
        results.put((os.getpid(),))
        while True:
            try:
                function, argument = tasks.get(timeout=_CHECK_AFTER)
            except Empty:
                results.connect().service()
            else:
                _answer(results, function, argument)
    except (NoMailbox, OwnerDied, SenderDied, Closed):
        pass


def _answer(results: Queue[Any], function: Callable[[Any], Any], argument: Any) -> None:
    """Calls the function, and sends its result or its exception."""
    pid = os.getpid()
    answer: tuple[Any, ...]
    try:
        answer = (pid, function(argument), None, None)
    except Exception as error:
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(repr(error))
        answer = (pid, None, error, trace)
    try:
        results.put(answer)
    except (OwnerDied, Closed):
        raise
    except Exception as error:
        # The result cannot be pickled, or is too large.
        text = f"a result cannot be sent: {error!r}"
        results.put((pid, None, RuntimeError(text), traceback.format_exc()))
