"""``Crew``: worker processes that run tasks, and the thread that looks after them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from itertools import count
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from ._errors import Error, TooLarge, WouldBlock
from ._oom import OomCounter
from ._runs import Run
from ._tontine import Board, Mailbox, Sender, take_results
from ._worker import (
    FIRST_CHUNK,
    MAX_BYTES,
    Assignment,
    Packet,
    SharedBoard,
    new_address,
    pickler,
    unpickle_error,
    work,
)

#: Kinds of records: see ``Kind`` in ``work.rs``.
_PICKLED, _RAISED, _SKIPPED, _SPLIT, _READY = 5, 6, 7, 8, 9

#: Seconds of work that travel to a worker together.
_BATCH_TIME = 2e-3
#: Maximum number of tasks that travel together, and how much more than the time before.
_MAX_BATCH, _MAX_GROWTH = 4096, 8
#: A worker gets a task in advance if a task takes less than this number of seconds.
_PREFETCH_BELOW = 20e-3
#: Seconds after which an idle worker gets what waits behind a task of another worker.
_WITHDRAW_AFTER = 1e-3
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


class WorkerDied(RuntimeError):
    """The worker of a task died, as did the workers of its repetitions.

    Attributes:
        function: The function that the task called.
        argument: Its argument; a tuple of all arguments if there are several.
        exitcode: The exit code of the last worker, or minus the number of the signal that ended it;
            ``None`` if another part of the program has waited for that process.
        signal: The signal that ended the last worker, or ``None``.
        oom: ``True`` if the kernel killed the last worker because its memory cgroup was full;
            ``None`` if that is not known.
    """

    __module__ = "tontine"

    def __init__(
        self,
        text: str,
        function: Any = None,
        argument: Any = None,
        exitcode: int | None = None,
        oom: bool | None = None,
    ) -> None:
        super().__init__(text, function, argument, exitcode, oom)
        self.function, self.argument = function, argument
        self.exitcode, self.oom = exitcode, oom
        is_signal = exitcode is not None and exitcode < 0
        self.signal = signal.Signals(-exitcode) if is_signal and exitcode is not None else None

    def __str__(self) -> str:
        return str(self.args[0])


class _Batch:
    """Successive tasks of a run, which travel to a worker together."""

    def __init__(self, run: Run | None, index: int, arguments: list[Any]) -> None:
        #: ``None`` if the tasks were withdrawn.
        self.run = run
        #: Index of the first task in the run.
        self.index = index
        self.arguments = arguments
        #: Number of tasks whose records have arrived.
        self.done = 0
        #: Number of the first task at the worker, and when it was sent.
        self.number = 0
        self.sent = 0.0


class _Worker:
    def __init__(self, number: int, slot: int, process: BaseProcess, address: str) -> None:
        self.number = number
        self.slot = slot
        self.process = process
        assert process.pid is not None
        self.pid = process.pid
        self.descriptor = os.pidfd_open(self.pid)
        self.address = address
        #: The sender of its tasks, once it is ready.
        self.tasks: Sender | None = None
        self.batches: deque[_Batch] = deque()
        #: Number of tasks that were sent, and of records that arrived.
        self.sent = self.received = 0
        #: When the first of the tasks could begin.
        self.since = 0.0
        #: True after its lane was full, until its next record.
        self.is_full = False
        #: True once its timeout has passed, and it was killed for that.
        self.is_late = False
        #: True once it was told to end.
        self.is_stopped = False

    def outstanding(self) -> int:
        return self.sent - self.received

    def has_withdrawn(self) -> bool:
        return any(batch.run is None for batch in self.batches)

    def kill(self) -> None:
        try:
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass


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
        self._retries, self._timeout, self._max_tasks = retries, timeout, max_tasks
        self._cloudpickle = cloudpickle
        self._dumps = pickler(cloudpickle)
        self.pid = os.getpid()
        # What users' threads and the crew's thread share, under the lock.
        self._lock = threading.Lock()
        self._added: list[Run] = []
        self._sleeps = False
        self._closing = self._cancelling = False
        self._killed: BaseException | None = None
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # What only the crew's thread uses.
        self._results = Mailbox(new_address(), cap=MAX_BYTES)
        self._board = Board(processes)
        self._numbers = count()
        self._workers: dict[int, _Worker] = {}
        self._free_slots = list(range(processes))
        self._ended: list[_Worker] = []
        self._runs: deque[Run] = deque()
        #: Tasks that come before those of the runs: their worker died, or they were withdrawn.
        self._returned: deque[_Batch] = deque()
        self._failed_starts, self._start_at = 0, 0.0
        self._oom = OomCounter()
        self._poll = select.poll()
        for descriptor in (self._wake_reader, self._results.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        self._has_started = threading.Event()
        self.thread = threading.Thread(target=self._manage, name="tontine-crew", daemon=True)
        self.thread.start()
        # A child must not inherit locks that this thread holds while it imports or prints.
        self._has_started.wait()

    # Users' threads.

    def add(self, run: Run) -> None:
        """Adds a run.

        Raises:
            RuntimeError: The crew is closed, or belongs to another process.
        """
        self.check()
        with self._lock:
            if self._closing or self._killed is not None:
                raise RuntimeError("it was closed, and accepts no more tasks; open a new one")
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

    def wake(self) -> None:
        """Lets the crew's thread look at its runs again."""
        with self._lock:
            self._wake()

    def _wake(self) -> None:
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
            added, self._added = self._added, []
            closing, cancelling, killed = self._closing, self._cancelling, self._killed
        self._runs.extend(added)
        if killed is not None:
            return False
        if cancelling:
            self._cancel_pending()
        received = self._receive()
        if self._ended:
            self._bury_ended()
        if closing and not self._has_work():
            return False
        self._start_missing()
        self._deal()
        if received >= _MANY:
            time.sleep(_REST)
        else:
            self._wait()
        return True

    def _has_work(self) -> bool:
        return bool(self._runs or self._returned) or any(
            worker.batches for worker in self._workers.values()
        )

    def _wait(self) -> None:
        """Waits until something may be due."""
        deadlines = []
        now = time.monotonic()
        if self._start_at > now:
            deadlines.append(self._start_at)
        busy = [worker for worker in self._workers.values() if worker.batches]
        if any(worker.is_full for worker in self._workers.values()) or self._can_withdraw():
            deadlines.append(now + _TICK)
        if self._timeout is not None:
            deadlines.extend(worker.since + self._timeout for worker in busy if not worker.is_late)
        if not self._results.arm():
            return
        with self._lock:
            if self._added or self._closing or self._killed is not None:
                if self._added or self._killed is not None or not self._has_work():
                    return
            self._sleeps = True
        length = None if not deadlines else max(0.0, min(deadlines) - now) * 1e3
        events = self._poll.poll(None if length is None else int(length) + 1)
        with self._lock:
            self._sleeps = False
        ready = {descriptor for descriptor, _ in events}
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        self._ended = [one for one in self._workers.values() if one.descriptor in ready]
        if self._timeout is not None:
            self._kill_late(time.monotonic() - self._timeout)

    def _kill_late(self, before: float) -> None:
        """Kills the workers whose task began before this time."""
        for worker in self._workers.values():
            if worker.batches and worker.since < before and not worker.is_late:
                # A result may have arrived meanwhile.
                if not self._receive() or worker.batches and worker.since < before:
                    worker.is_late = True
                    worker.kill()

    # Results.

    def _receive(self) -> int:
        """Delivers the results that have arrived, and returns how many there were."""
        total = 0
        while groups := take_results(self._results, _MAX_RESULTS):
            for number, first, values, others in groups:
                worker = self._workers.get(number)
                if worker is not None:
                    self._accept(worker, first, values, others)
                total += len(values)
        return total

    def _accept(
        self, worker: _Worker, first: int, values: list[Any], others: list[tuple[int, int, bytes]]
    ) -> None:
        """Delivers successive records of one worker."""
        if first == 0:
            return self._welcome(worker)
        failed: dict[int, Any] = {}
        for position, kind, payload in others:
            try:
                if kind == _PICKLED:
                    values[position] = pickle.loads(payload)
                elif kind == _RAISED:
                    failed[position] = unpickle_error(payload)
                else:
                    failed[position] = kind
            except BaseException as error:
                failed[position] = error
        worker.received += len(values)
        worker.is_full = False
        now = time.monotonic()
        at = 0
        while at < len(values):
            batch = worker.batches[0]
            number = min(len(values) - at, len(batch.arguments) - batch.done)
            if batch.run is not None:
                part = values if number == len(values) else values[at : at + number]
                self._deliver(batch, part, {k - at: v for k, v in failed.items() if k >= at})
            batch.done += number
            at += number
            if batch.done == len(batch.arguments):
                worker.batches.popleft()
                self._estimate(batch, now - max(batch.sent, worker.since))
                worker.since = now
        worker.since = now

    def _deliver(self, batch: _Batch, values: list[Any], failed: dict[int, Any]) -> None:
        run, index = batch.run, batch.index + batch.done
        assert run is not None
        begin = 0
        for position in [*sorted(k for k in failed if k < len(values)), len(values)]:
            if begin < position and not run.abandoned:
                run.deliver(index + begin, values[begin:position] if failed else values)
            begin = position + 1
            if position == len(values):
                break
            result = failed[position]
            if isinstance(result, int):
                # The task did not run: another worker, or a packet of its own, gets it.
                arguments = [batch.arguments[batch.done + position]]
                self._returned.append(_Batch(run, index + position, arguments))
            elif not run.abandoned:
                run.fail(index + position, result)

    def _estimate(self, batch: _Batch, seconds: float) -> None:
        if batch.run is not None:
            cost = seconds / len(batch.arguments)
            before = batch.run.cost
            batch.run.cost = cost if before is None else (before + cost) / 2

    # Tasks.

    def _deal(self) -> None:
        """Sends tasks to workers: first to those that have none."""
        ready = [one for one in self._workers.values() if one.tasks is not None]
        idle = [one for one in ready if not one.batches]
        if idle and self._can_withdraw():
            for worker in ready:
                if time.monotonic() - worker.since > _WITHDRAW_AFTER:
                    self._withdraw(worker)
        for worker in idle:
            self._send_next(worker, len(idle))
        for worker in ready:
            while worker.batches and self._may_prefetch(worker):
                if not self._send_next(worker, len(ready)):
                    break

    def _may_prefetch(self, worker: _Worker) -> bool:
        if worker.is_full or worker.has_withdrawn():
            return False
        run = worker.batches[-1].run
        if run is None or run.cost is None or run.cost > _PREFETCH_BELOW:
            return False
        return worker.outstanding() == 1 or worker.outstanding() * run.cost < _BATCH_TIME / 2

    def _send_next(self, worker: _Worker, sharers: int) -> bool:
        """Sends the next tasks to a worker, and returns whether there were any."""
        if worker.is_full or worker.has_withdrawn() or worker.is_stopped:
            return False
        limit = _MAX_BATCH
        if self._max_tasks is not None:
            limit = self._max_tasks - worker.sent
            if limit <= 0:
                if not worker.batches:
                    self._stop(worker)
                return False
        while (batch := self._next_batch(limit, sharers)) is not None:
            if (sent := self._send(worker, batch)) is not None:
                return sent
        return False

    def _next_batch(self, limit: int, sharers: int) -> _Batch | None:
        while self._returned:
            batch = self._returned.popleft()
            assert batch.run is not None
            if batch.run.abandoned:
                continue
            share = min(limit, max(1, len(batch.arguments) // sharers))
            if share < len(batch.arguments):
                rest = _Batch(batch.run, batch.index + share, batch.arguments[share:])
                self._returned.appendleft(rest)
                del batch.arguments[share:]
            return batch
        for _ in range(len(self._runs)):
            run = self._runs[0]
            if run.abandoned:
                run.drop()
            if len(run):
                index, arguments = run.take(min(limit, self._batch_size(run)))
                if arguments:
                    return _Batch(run, index, arguments)
            if run.is_over() or run.abandoned:
                self._runs.popleft()
            else:
                # Its source is slower than the workers.
                self._runs.rotate(-1)
        return None

    def _batch_size(self, run: Run) -> int:
        least = run.chunksize or 1
        if run.cost is None:
            size = least
        else:
            size = int(min(_BATCH_TIME / max(run.cost, 1e-9), _MAX_GROWTH * run.batch_size))
            size = min(size, _MAX_BATCH, len(run) // (2 * self._processes))
            size = max(size - size % least, least)
        run.batch_size = size
        return size

    def _send(self, worker: _Worker, batch: _Batch) -> bool | None:
        """Sends tasks to a worker; ``None`` if they cannot be sent at all.

        Returns false if there is no free space now, or the worker has died.
        """
        run = batch.run
        assert run is not None and worker.tasks is not None
        try:
            if run.pickled is None:
                run.pickled = self._dumps(run.function)
            packet = Packet(
                worker.sent + 1,
                len(batch.arguments),
                run.pickled,
                run.form,
                self._dumps(batch.arguments),
            )
            # A tuple: the worker need not import the class.
            worker.tasks.try_send(pickle.dumps(tuple(packet), pickle.HIGHEST_PROTOCOL))
        except WouldBlock:
            worker.is_full = True
            self._returned.appendleft(batch)
            return False
        except Error as error:
            if not isinstance(error, TooLarge):
                # It has died: `_bury` follows.
                self._returned.appendleft(batch)
                worker.is_full = True
                return False
            self._refuse(batch, error)
            return None
        except BaseException as error:
            self._refuse(batch, error)
            return None
        now = time.monotonic()
        batch.number, batch.sent = worker.sent + 1, now
        if not worker.batches:
            worker.since = now
        worker.sent += len(batch.arguments)
        worker.batches.append(batch)
        return True

    def _refuse(self, batch: _Batch, error: BaseException) -> None:
        """Fails a task that cannot be sent; several are tried one by one."""
        assert batch.run is not None
        if len(batch.arguments) == 1:
            return batch.run.fail(batch.index, error)
        for position, argument in reversed(list(enumerate(batch.arguments))):
            self._returned.appendleft(_Batch(batch.run, batch.index + position, [argument]))

    def _can_withdraw(self) -> bool:
        """Returns whether a worker has nothing to do while tasks wait behind others."""
        if self._returned or any(len(run) for run in self._runs):
            return False
        workers = [one for one in self._workers.values() if one.tasks is not None]
        return any(not one.batches for one in workers) and any(
            one.outstanding() > 1 and not one.has_withdrawn() for one in workers
        )

    def _withdraw(self, worker: _Worker) -> None:
        """Takes the tasks back that a worker has not begun."""
        if worker.outstanding() < 2 or worker.has_withdrawn():
            return
        first = self._board.begun(worker.slot) + 1
        if first > worker.sent:
            return
        begun = self._board.withdraw(worker.slot, first, worker.sent + 1 - first)
        kept: deque[_Batch] = deque()
        for batch in worker.batches:
            # What the worker may have begun stays.
            stay = min(max(begun + 1 - batch.number, batch.done), len(batch.arguments))
            taken = batch.arguments[stay:]
            if batch.run is not None and taken:
                self._returned.append(_Batch(batch.run, batch.index + stay, taken))
                del batch.arguments[stay:]
                if stay > batch.done:
                    kept.append(batch)
                kept.append(_Batch(None, 0, [None] * len(taken)))
            else:
                kept.append(batch)
        worker.batches = kept

    def _cancel_pending(self) -> None:
        """Cancels the tasks that have not been taken."""
        for run in self._runs:
            if len(run):
                run.cancel_pending()

    # Workers.

    def _start_missing(self) -> None:
        """Starts a worker for each free slot."""
        if self._start_at > time.monotonic():
            return
        self._start_at = 0.0
        while self._free_slots:
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
                worker = _Worker(number, slot, process, address)
            except Exception as error:
                # The system lacks a resource, or the initializer cannot be pickled.
                self._start_at = time.monotonic() + _START_AGAIN
                return self._count_failed_start(f"a worker cannot be started: {error}", error)
            self._free_slots.pop()
            self._workers[number] = worker
            self._poll.register(worker.descriptor, select.POLLIN)

    def _welcome(self, worker: _Worker) -> None:
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

    def _stop(self, worker: _Worker) -> None:
        """Lets a worker end that has no task."""
        worker.is_stopped = True
        if worker.tasks is None:
            return worker.kill()
        try:
            worker.tasks.try_send(b"")
        except Error:
            worker.kill()

    def _bury_ended(self) -> None:
        # The kernel counts a kill before the process ends: whoever ended before the count is read
        # is among these.
        oom = self._oom.has_risen()
        ended = {descriptor for descriptor, _ in self._poll.poll(0)}
        workers = [one for one in self._workers.values() if one.descriptor in ended]
        self._ended = []
        # Everything that they had sent is there now.
        self._results.arm()
        self._receive()
        exitcodes = {worker: _exit_code(worker.process) for worker in workers}
        # If the kernel killed one of several, it is not known which.
        oom = oom and list(exitcodes.values()).count(-signal.SIGKILL) == 1
        for worker, exitcode in exitcodes.items():
            self._bury(worker, exitcode, oom and exitcode == -signal.SIGKILL or None)

    def _bury(self, worker: _Worker, exitcode: int | None, oom: bool | None) -> None:
        """Repeats the tasks of a worker that has ended, and frees its slot."""
        del self._workers[worker.number]
        self._free_slots.append(worker.slot)
        self._poll.unregister(worker.descriptor)
        os.close(worker.descriptor)
        has_begun = self._board.begun(worker.slot) > worker.received
        returned = []
        for batch in worker.batches:
            if batch.run is None:
                has_begun = False
                continue
            if has_begun:
                has_begun = False
                argument, index = batch.arguments[batch.done], batch.index + batch.done
                batch.done += 1
                if self._may_repeat(worker, batch.run, index, argument, exitcode, oom):
                    returned.append(_Batch(batch.run, index, [argument]))
            if batch.done < len(batch.arguments):
                index = batch.index + batch.done
                returned.append(_Batch(batch.run, index, batch.arguments[batch.done :]))
        self._returned.extendleft(reversed(returned))
        if worker.tasks is not None:
            worker.tasks.close()
        elif not worker.is_stopped:
            self._count_failed_start(f"workers end before they are ready, with exit code {exitcode}")

    def _may_repeat(
        self,
        worker: _Worker,
        run: Run,
        index: int,
        argument: Any,
        exitcode: int | None,
        oom: bool | None,
    ) -> bool:
        """Returns whether a task runs again whose worker died; otherwise, the task fails."""
        if run.abandoned:
            return False
        if worker.is_late:
            text = f"the task ran for longer than {self._timeout} s, and its worker was killed"
            run.fail(index, TimeoutError(text))
            return False
        deaths = run.deaths.pop(index, 0) + 1
        if deaths <= self._retries:
            run.deaths[index] = deaths
            return True
        if run.form == "call":
            args, keywords = argument
            argument = args if keywords or len(args) != 1 else args[0]
        workers = "1 worker" if deaths == 1 else f"{deaths} workers"
        name = getattr(run.function, "__qualname__", None) or repr(run.function)
        text = (
            f"{workers} died of this task, the last with exit code {exitcode}"
            f"{' (out of memory)' if oom else ''}: {name} with {_shortened(argument)}"
        )
        run.fail(index, WorkerDied(text, run.function, argument, exitcode, oom))
        return False

    def _count_failed_start(self, text: str, cause: BaseException | None = None) -> None:
        """Fails all runs if no worker becomes ready any more."""
        self._failed_starts += 1
        if self._failed_starts < max(3, 2 * self._processes):
            return
        self._failed_starts = 0
        if self._context.get_start_method() != "fork":
            text += (
                "; with this start method each worker imports the main module, which must start "
                "workers only behind `if __name__ == \"__main__\":`"
            )
        with self._lock:
            self._runs.extend(self._added)
            self._added.clear()
        error = BrokenExecutor(text)
        error.__cause__ = cause
        self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        runs: dict[int, Run] = {id(run): run for run in self._runs}
        waiting = [*self._returned]
        for worker in self._workers.values():
            waiting.extend(worker.batches)
        for batch in waiting:
            if batch.run is not None:
                runs[id(batch.run)] = batch.run
        self._runs.clear()
        self._returned.clear()
        for run in runs.values():
            if not run.abandoned:
                run.abandoned = True
                run.cancel(error)

    def _end(self) -> None:
        """Ends the workers, and fails what is left."""
        with self._lock:
            killed = self._killed
            self._closing = True
            self._runs.extend(self._added)
            self._added.clear()
        deadline = time.monotonic() + (_GRACE if killed is None else 0.0)
        for worker in self._workers.values():
            if killed is None:
                self._stop(worker)
            else:
                worker.kill()
        for worker in self._workers.values():
            left = max(0.0, deadline - time.monotonic())
            if not select.select([worker.descriptor], [], [], left)[0]:
                worker.kill()
                select.select([worker.descriptor], [], [])
            _exit_code(worker.process)
            os.close(worker.descriptor)
            if worker.tasks is not None:
                worker.tasks.close()
        self._fail_all(killed or RuntimeError("the workers have ended"))
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
    return process.exitcode


def _shortened(argument: Any) -> str:
    try:
        text = repr(argument)
    except Exception:
        text = f"an argument of type {type(argument).__name__}"
    return text if len(text) <= 200 else f"{text[:197]}..."
