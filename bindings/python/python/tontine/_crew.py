"""``Crew``: worker processes that run tasks, and the thread that manages them."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from itertools import count
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from ._dealer import Dealer, Worker
from ._errors import Error
from ._oom import OomCounter
from ._runs import Call, Run
from ._tontine import Board, Mailbox, Sender, take_results
from ._worker import (
    FIRST_CHUNK,
    MAX_BYTES,
    Assignment,
    SharedBoard,
    new_address,
    work,
)

#: Seconds between two looks at tasks that could be withdrawn, or sent again.
_TICK = 2e-3
#: Seconds between two looks at results while there are many, and how many these are. A sender
#: need not wake the crew's thread meanwhile.
_REST, _MANY = 300e-6, 16
#: Maximum number of results that are taken at once.
_MAX_RESULTS = 8192
#: Seconds in which an idle worker ends, before it is killed.
_GRACE = 10.0
#: Seconds between two attempts to start a worker while the system refuses.
_START_AGAIN = 10e-3


class Crew:
    """Worker processes and the thread that starts them, deals tasks out, and collects results.

    The thread lives as long as the crew, because the kernel kills a worker when the thread ends
    that started it. Users' threads only add runs: no exception that interrupts them leaves a task
    half sent.
    """

    def __init__(
        self,
        processes: int,
        *,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        context: BaseContext | None,
        retries: int,
        timeout: float | None,
        max_tasks: int | None,
        cloudpickle: bool,
    ) -> None:
        self._context: Any = context or multiprocessing.get_context()
        self._processes = processes
        self._initializer, self._initargs = initializer, initargs
        self._timeout, self._cloudpickle = timeout, cloudpickle
        self.pid = os.getpid()
        # What users' threads and the crew's thread share, under the lock.
        # The collector may end an iteration, and so wake the thread, in any allocation: RLock.
        self._lock = threading.RLock()
        self._added: list[Run | Call] = []
        #: Whether the crew's thread sleeps, and whether it was woken since it last began to deal.
        self._sleeps = self._is_woken = False
        self._closing = self._cancelling = False
        self._killed: BaseException | None = None
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # What only the crew's thread uses.
        self._results = Mailbox(new_address(), cap=MAX_BYTES)
        self._board = Board(processes)
        self._numbers = count()
        self._dealer = Dealer(
            processes,
            self._board,
            retries=retries,
            timeout=timeout,
            max_tasks=max_tasks,
            cloudpickle=cloudpickle,
        )
        self._workers = self._dealer.workers
        self._free_slots = list(range(processes))
        self._has_ended = False
        #: How many workers in succession ended before they were ready.
        self._failed_starts = 0.0
        #: True from a failure of all starts until there is a task again. Also while a worker imports
        #: the main module: if this makes an executor, its workers would import the module in turn.
        self._is_paused = self._is_in_import()
        #: When the next attempt to start a worker is due.
        self._start_at = 0.0
        self._oom = OomCounter()
        self._poll = select.poll()
        for descriptor in (self._wake_reader, self._results.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        self._has_started = threading.Event()
        self.thread = threading.Thread(target=self._manage, name="tontine-crew", daemon=True)
        self.thread.start()
        try:
            # A child must not inherit locks that this thread holds while it imports or prints.
            self._has_started.wait()
        except BaseException as error:
            self.kill(error)
            self.thread.join()
            raise

    # Users' threads.

    def add(self, run: Run | Call) -> None:
        """Adds a run, or a call.

        Raises:
            RuntimeError: The crew is closed, or belongs to another process.
        """
        self.check()
        with self._lock:
            if self._closing or self._killed is not None:
                raise RuntimeError("after shutdown it accepts no more tasks; open a new one")
            self._added.append(run)
            self._wake()

    def check(self) -> None:
        """Checks that this process may use the crew.

        Raises:
            RuntimeError: The crew belongs to another process.
        """
        if os.getpid() != self.pid:
            raise RuntimeError(
                f"its workers belong to process {self.pid}, which forked this one: open another "
                "one in this process, or pass results to that process"
            )
        if self._is_in_import():
            raise RuntimeError(
                "a worker that imports the main module runs it; let the module call it only behind "
                '`if __name__ == "__main__":`'
            )

    def _is_in_import(self) -> bool:
        """Returns whether this process imports the main module before its own work."""
        is_importing = getattr(multiprocessing.current_process(), "_inheriting", False)
        return is_importing and self._context.get_start_method() != "fork"

    def wake(self) -> None:
        """Lets the crew's thread look at its runs again."""
        # In a child that this process forked, a thread that is not there may hold the lock.
        if os.getpid() == self.pid:
            with self._lock:
                self._wake()

    def _wake(self) -> None:
        self._is_woken = True
        if self._sleeps:
            self._sleeps = False
            os.write(self._wake_writer, b"!")

    def close(self, cancel: bool = False) -> None:
        """Accepts no more runs; the workers end after the last task."""
        with self._lock:
            self._closing = True
            self._cancelling |= cancel
            self._wake()

    def kill(self, error: BaseException) -> None:
        """Kills the workers; what has not finished fails with this exception."""
        with self._lock:
            self._killed = self._killed or error
            self._wake()

    def pids(self) -> list[int]:
        """Returns the process ids of the workers."""
        return [worker.pid for worker in list(self._workers.values())]

    # The crew's thread.

    def _manage(self) -> None:
        try:
            self._start_missing()
            self._has_started.set()
            while self._step():
                pass
        except BaseException as error:
            with self._lock:
                self._killed = self._killed or error
            raise
        finally:
            self._has_started.set()
            self._end()

    def _step(self) -> bool:
        """Does what is due, then waits; returns whether there is more to do."""
        with self._lock:
            self._is_woken = False
            closing, cancelling, killed = self._closing, self._cancelling, self._killed
        self._take_added()
        if killed is not None:
            return False
        if closing:
            self._dealer.close_sources()
        if cancelling:
            self._dealer.cancel_pending()
        received = self._receive()
        if self._has_ended:
            self._bury_ended()
        if closing and self._is_over():
            return False
        self._start_missing()
        self._dealer.deal()
        if received >= _MANY:
            time.sleep(_REST)
        else:
            self._wait()
        return True

    def _is_over(self) -> bool:
        """Returns whether there is no task, and no worker that runs its initializer."""
        is_starting = any(worker.tasks is None for worker in self._workers.values())
        return not is_starting and not self._dealer.has_work()

    def _take_added(self) -> None:
        """Takes what the users' threads have added."""
        with self._lock:
            added, self._added = self._added, []
        for run in added:
            self._dealer.add(run)

    def _wait(self) -> None:
        """Waits until something may be due."""
        deadlines = []
        now = time.monotonic()
        if self._start_at > now:
            deadlines.append(self._start_at)
        busy = [worker for worker in self._workers.values() if worker.batches]
        if any(worker.is_full for worker in self._workers.values()) or self._dealer.can_withdraw():
            deadlines.append(now + _TICK)
        if self._timeout is not None:
            deadlines.extend(worker.since + self._timeout for worker in busy if not worker.late)
        stopped = [worker for worker in self._workers.values() if worker.is_stopped]
        deadlines.extend(worker.stopped_at + _GRACE for worker in stopped)
        if not self._results.arm():
            return
        with self._lock:
            if self._is_woken or self._closing and self._is_over():
                return
            self._sleeps = True
        length = None if not deadlines else max(0.0, min(deadlines) - now) * 1e3
        events = self._poll.poll(None if length is None else int(length) + 1)
        with self._lock:
            self._sleeps = False
        ready = {descriptor for descriptor, _ in events}
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        self._has_ended = any(one.descriptor in ready for one in self._workers.values())
        for worker in stopped:
            if worker.stopped_at + _GRACE <= time.monotonic():
                worker.kill()
        if self._timeout is not None:
            self._kill_late(time.monotonic() - self._timeout)

    def _kill_late(self, before: float) -> None:
        """Kills the workers whose task began before this time."""
        for worker in self._workers.values():
            if worker.batches and worker.since < before and not worker.late:
                # A result may have arrived meanwhile.
                if not self._receive() or worker.batches and worker.since < before:
                    worker.late = worker.received + 1
                    worker.kill()

    def _receive(self) -> int:
        """Delivers the results that have arrived, and returns how many there were."""
        total = 0
        while groups := take_results(self._results, _MAX_RESULTS):
            for number, first, values, others in groups:
                worker = self._workers.get(number)
                if worker is not None and first == 0:
                    self._welcome(worker)
                elif worker is not None:
                    self._dealer.accept(worker, first, values, others)
                total += len(values)
        return total

    # Workers.

    def _start_missing(self) -> None:
        """Starts a worker for each free slot."""
        if self._start_at > time.monotonic():
            return
        # It was closed, or no worker can be started.
        if (self._closing or self._is_paused) and not self._dealer.has_work():
            return
        self._start_at, self._is_paused = 0.0, False
        while self._free_slots and self._killed is None:
            slot = self._free_slots[-1]
            number, address = next(self._numbers), new_address()
            self._board.reset(slot)
            assignment = Assignment(
                self.pid,
                number,
                SharedBoard(self._board),
                slot,
                address,
                self._results.address,
                self._initializer,
                self._initargs,
                self._cloudpickle,
            )
            process = self._context.Process(
                target=work, args=(assignment,), name=f"tontine-{number}"
            )
            try:
                process.start()
                worker = Worker(number, slot, process, address)
            except Exception as error:
                if process.pid is not None:
                    process.kill()
                    process.join()
                # The system lacks a resource, or the initializer cannot be pickled.
                self._start_at = time.monotonic() + _START_AGAIN
                return self._count_failed_start(f"a worker cannot be started: {error}", error)
            self._free_slots.pop()
            self._workers[number] = worker
            self._poll.register(worker.descriptor, select.POLLIN)

    def _welcome(self, worker: Worker) -> None:
        """A worker is ready."""
        try:
            worker.tasks = Sender(
                worker.address, timeout=0.0, cap=MAX_BYTES, first_chunk=FIRST_CHUNK
            )
        except Error:
            # It has died, or this process lacks a resource: another worker takes its place.
            worker.kill()
        else:
            self._failed_starts = 0

    def _bury_ended(self) -> None:
        # The kernel counts a kill before the process ends: each process that ended before the count
        # is read is among these.
        oom = self._oom.has_risen()
        ended = {descriptor for descriptor, _ in self._poll.poll(0)}
        workers = [one for one in self._workers.values() if one.descriptor in ended]
        self._has_ended = False
        # Everything that they had sent is there now.
        self._results.arm()
        self._receive()
        exitcodes = {worker: _exit_code(worker.process) for worker in workers}
        # If the kernel killed one of several, it is not known which.
        oom = oom and list(exitcodes.values()).count(-signal.SIGKILL) == 1
        for worker, exitcode in exitcodes.items():
            self._bury(worker, exitcode, oom and exitcode == -signal.SIGKILL or None)

    def _bury(self, worker: Worker, exitcode: int | None, oom: bool | None) -> None:
        """Repeats the tasks of a worker that has ended, and frees its slot."""
        del self._workers[worker.number]
        self._free_slots.append(worker.slot)
        self._poll.unregister(worker.descriptor)
        os.close(worker.descriptor)
        self._dealer.take_back(worker, exitcode, oom)
        if worker.tasks is not None:
            worker.tasks.close()
        elif not worker.is_stopped:
            text = f"workers end before they are ready, with exit code {exitcode}"
            # A kill may come from outside, and then says little about the next worker.
            self._count_failed_start(text, weight=0.05 if exitcode == -signal.SIGKILL else 1)

    def _count_failed_start(
        self, text: str, cause: BaseException | None = None, weight: float = 1
    ) -> None:
        """Fails all runs if no worker becomes ready any more."""
        self._failed_starts += weight
        if self._failed_starts < max(3, 2 * self._processes):
            return
        self._failed_starts, self._is_paused = 0, True
        if self._context.get_start_method() != "fork":
            text += (
                "; with this start method each worker imports the main module, which must start "
                "workers only behind `if __name__ == \"__main__\":`"
            )
        self._take_added()
        error = BrokenExecutor(text)
        error.__cause__ = cause
        self._dealer.fail_all(error)

    def _end(self) -> None:
        """Ends the workers, and fails what is left."""
        with self._lock:
            killed = self._killed
            self._closing = True
        self._take_added()
        deadline = time.monotonic() + (_GRACE if killed is None else 0.0)
        for worker in self._workers.values():
            if killed is None:
                worker.stop()
            else:
                worker.kill()
        for worker in self._workers.values():
            if not worker.has_ended(max(0.0, deadline - time.monotonic())):
                worker.kill()
                worker.has_ended(None)
            _exit_code(worker.process)
            os.close(worker.descriptor)
            if worker.tasks is not None:
                worker.tasks.close()
        self._dealer.fail_all(killed or RuntimeError("the workers have ended"))
        self._workers.clear()
        self._results.close()
        os.close(self._wake_reader)
        with self._lock:
            self._sleeps = False
            os.close(self._wake_writer)


def _exit_code(process: BaseProcess) -> int | None:
    """Returns the exit code of a process that has ended, if it is known."""
    if process._popen.method == "forkserver":  # type: ignore[attr-defined]
        # The fork server reports the end of its child a moment later.
        process.join(1.0)
    exitcode = process.exitcode
    # Otherwise `multiprocessing` keeps it among the children of this process.
    process.join(0)
    return exitcode
