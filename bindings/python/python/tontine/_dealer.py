"""``Dealer``: which worker runs which task."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections import deque
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import WeakKeyDictionary

from ._errors import Error, TooLarge, WorkerDied, WouldBlock
from ._runs import Call, Calls, Pace, Run
from ._tontine import Board, Sender
from ._worker import Packet, is_stateless, pickler, unpickle_error

#: Kinds of records: see ``Kind`` in ``work.rs``.
_PICKLED, _RAISED = 5, 6

#: Seconds of work that travel to a worker together.
_BATCH_TIME = 2e-3
#: Seconds of work that need not be shared out.
_LEAST_TIME = 100e-6
#: Maximum number of tasks that travel together, and how much more than the time before.
_MAX_BATCH, _MAX_GROWTH = 4096, 8
#: A worker gets a task in advance if a task takes less than this number of seconds.
_PREFETCH_BELOW = 20e-3
#: Seconds after which an idle worker gets what waits behind a task of another worker.
_WITHDRAW_AFTER = 1e-3


class Batch:
    """Successive tasks of a run, which travel to a worker together."""

    def __init__(self, run: Run | None, index: int, arguments: list[Any]) -> None:
        #: ``None`` if the tasks were withdrawn.
        self.run = run
        #: Index of the first task in the run.
        self.index = index
        self.arguments = arguments
        #: Number of tasks whose records have arrived.
        self.done = 0
        #: Number of the first task at the worker, how many were sent with it, and when.
        self.number = self.size = 0
        self.sent = 0.0


class Worker:
    """A worker process, and the tasks that it has."""

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
        self.batches: deque[Batch] = deque()
        #: Number of tasks that were sent, and of records that arrived.
        self.sent = self.received = 0
        #: When the first of the tasks could begin.
        self.since = 0.0
        #: True after a packet found no space in its lane, until the next attempt or record.
        self.is_full = False
        #: Number of the task whose timeout has passed, for which it was killed; otherwise 0.
        self.late = 0
        #: True once it was told to end, and when.
        self.is_stopped = False
        self.stopped_at = 0.0

    def outstanding(self) -> int:
        """Returns the number of tasks whose records have not arrived."""
        return self.sent - self.received

    def stop(self) -> None:
        """Lets the process end, which has no task."""
        self.is_stopped, self.stopped_at = True, time.monotonic()
        if self.tasks is None:
            return self.kill()
        try:
            self.tasks.try_send(b"")
        except Error:
            self.kill()

    def has_ended(self, timeout: float | None) -> bool:
        """Waits at most this number of seconds for the end, and returns whether it has ended."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1e3))

    def has_withdrawn(self) -> bool:
        """Returns whether it has not passed all tasks that were withdrawn."""
        # They are the last ones: it gets no others before it has passed them.
        return bool(self.batches) and self.batches[-1].run is None

    def kill(self) -> None:
        """Kills the process."""
        try:
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Dealer:
    """Deals the tasks of runs out to workers, and their results to the runs.

    Only the crew's thread uses it.
    """

    def __init__(
        self,
        processes: int,
        board: Board,
        *,
        retries: int,
        timeout: float | None,
        max_tasks: int | None,
        cloudpickle: bool,
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self._processes, self._board = processes, board
        self._retries, self._timeout, self._max_tasks = retries, timeout, max_tasks
        self._dumps = pickler(cloudpickle)
        self._runs: deque[Run] = deque()
        self._paces: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()
        #: Tasks that come before those of the runs: their worker died, or they were withdrawn.
        self._returned: deque[Batch] = deque()

    def add(self, run: Run | Call) -> None:
        """Adds a run, or a call."""
        if isinstance(run, Run):
            run.pace = self._pace(run)
            self._runs.append(run)
            return
        last = self._runs[-1] if self._runs else None
        if (
            not isinstance(last, Calls)
            or last.function is not run.function
            or not is_stateless(run.function)
        ):
            last = Calls(run.function)
            last.pace = self._pace(last)
            self._runs.append(last)
        last.add(run)

    def _pace(self, run: Run) -> Pace:
        try:
            return self._paces.setdefault(run.function, run.pace)
        except Exception:
            # The function cannot be a key.
            return run.pace

    def has_work(self) -> bool:
        """Returns whether a task has not finished."""
        return bool(self._runs or self._returned) or any(
            worker.batches for worker in self.workers.values()
        )

    def cancel_pending(self) -> None:
        """Cancels the tasks that have not been taken."""
        for run in self._runs:
            if len(run):
                run.cancel_pending()

    def close_sources(self) -> None:
        """Tells the runs that no more tasks are accepted."""
        for run in self._runs:
            run.close_source()

    # Results.

    def accept(
        self, worker: Worker, first: int, values: list[Any], others: list[tuple[int, int, bytes]]
    ) -> None:
        """Delivers successive records of one worker."""
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

    def _deliver(self, batch: Batch, values: list[Any], failed: dict[int, Any]) -> None:
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
                self._returned.append(Batch(run, index + position, arguments))
            elif not run.abandoned:
                run.fail(index + position, result)

    def _estimate(self, batch: Batch, seconds: float) -> None:
        if batch.run is not None:
            batch.run.pace.count(seconds / len(batch.arguments))

    # Tasks.

    def deal(self) -> None:
        """Sends tasks to workers: first to those that have none."""
        ready = [one for one in self.workers.values() if one.tasks is not None]
        idle = [one for one in ready if not one.batches]
        if idle and self.can_withdraw():
            for worker in ready:
                if time.monotonic() - worker.since > _WITHDRAW_AFTER:
                    self._withdraw(worker)
        for worker in idle:
            self._send_next(worker, len(idle))
        for worker in ready:
            while worker.batches and self._may_prefetch(worker):
                if not self._send_next(worker, len(ready)):
                    break

    def _may_prefetch(self, worker: Worker) -> bool:
        if worker.is_full or worker.has_withdrawn():
            return False
        run = worker.batches[-1].run
        cost = None if run is None else run.pace.cost
        if cost is None or cost > _PREFETCH_BELOW:
            return False
        return worker.outstanding() == 1 or worker.outstanding() * cost < _BATCH_TIME / 2

    def _send_next(self, worker: Worker, sharers: int) -> bool:
        """Sends the next tasks to a worker, and returns whether there were any."""
        if worker.has_withdrawn() or worker.is_stopped:
            return False
        worker.is_full = False
        limit = _MAX_BATCH
        if self._max_tasks is not None:
            limit = self._max_tasks - worker.sent
            if limit <= 0:
                if not worker.batches:
                    worker.stop()
                return False
        while (batch := self._next_batch(limit, sharers)) is not None:
            if (sent := self._send(worker, batch)) is not None:
                return sent
        return False

    def _next_batch(self, limit: int, sharers: int) -> Batch | None:
        while self._returned:
            batch = self._returned.popleft()
            assert batch.run is not None
            if batch.run.abandoned:
                continue
            share = min(limit, max(1, len(batch.arguments) // sharers))
            if share < len(batch.arguments):
                rest = Batch(batch.run, batch.index + share, batch.arguments[share:])
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
                    return Batch(run, index, arguments)
            if run.is_over() or run.abandoned:
                self._runs.popleft()
            else:
                # Its source is slower than the workers.
                self._runs.rotate(-1)
        return None

    def _batch_size(self, run: Run) -> int:
        least, pace = run.chunksize or 1, run.pace
        size = least
        if pace.cost is not None:
            cost = max(pace.cost, 1e-9)
            size = int(min(_BATCH_TIME / cost, _MAX_GROWTH * pace.batch_size, _MAX_BATCH))
            # The last tasks are shared out in smaller portions.
            share = len(run) // (2 * self._processes)
            size = min(size, max(share, int(_LEAST_TIME / cost)))
            size = max(size - size % least, least)
        pace.batch_size = size
        return size

    def _send(self, worker: Worker, batch: Batch) -> bool | None:
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
        batch.number, batch.size, batch.sent = worker.sent + 1, len(batch.arguments), now
        if not worker.batches:
            worker.since = now
        worker.sent += len(batch.arguments)
        worker.batches.append(batch)
        return True

    def _refuse(self, batch: Batch, error: BaseException) -> None:
        """Fails a task that cannot be sent; several are tried one by one."""
        assert batch.run is not None
        if len(batch.arguments) == 1:
            return batch.run.fail(batch.index, error)
        for position, argument in reversed(list(enumerate(batch.arguments))):
            self._returned.appendleft(Batch(batch.run, batch.index + position, [argument]))

    def can_withdraw(self) -> bool:
        """Returns whether a worker has nothing to do while tasks wait behind others."""
        if self._returned or any(len(run) for run in self._runs):
            return False
        workers = [one for one in self.workers.values() if one.tasks is not None]
        return any(not one.batches for one in workers) and any(
            one.outstanding() > 1 and not one.has_withdrawn() for one in workers
        )

    def _withdraw(self, worker: Worker) -> None:
        """Takes the tasks back that a worker has not begun."""
        if worker.outstanding() < 2 or worker.has_withdrawn():
            return
        first = self._board.begun(worker.slot) + 1
        if first > worker.sent:
            return
        begun = self._board.withdraw(worker.slot, first, worker.sent + 1 - first)
        kept: deque[Batch] = deque()
        for batch in worker.batches:
            # What the worker may have begun stays.
            stay = min(max(begun + 1 - batch.number, batch.done), len(batch.arguments))
            taken = batch.arguments[stay:]
            if batch.run is not None and taken:
                self._returned.append(Batch(batch.run, batch.index + stay, taken))
                del batch.arguments[stay:]
                if stay > batch.done:
                    kept.append(batch)
                kept.append(Batch(None, 0, [None] * len(taken)))
            else:
                kept.append(batch)
        worker.batches = kept

    def take_back(self, worker: Worker, exitcode: int | None, oom: bool | None) -> None:
        """Repeats the tasks of a worker that has ended, and whose records have all arrived."""
        following = worker.received + 1
        has_begun = self._board.begun(worker.slot) == following
        # It died while it unpickled a packet: each task then travels alone.
        is_read = not has_begun and self._board.reading(worker.slot) == following
        returned = []
        for batch in worker.batches:
            if batch.run is None:
                has_begun = is_read = False
                continue
            if is_read and batch.size > 1:
                is_read = False
                for position, argument in enumerate(batch.arguments, batch.index):
                    returned.append(Batch(batch.run, position, [argument]))
                continue
            if has_begun or is_read:
                has_begun = is_read = False
                argument, index = batch.arguments[batch.done], batch.index + batch.done
                batch.done += 1
                if self._may_repeat(worker, batch.run, index, argument, exitcode, oom):
                    returned.append(Batch(batch.run, index, [argument]))
            if batch.done < len(batch.arguments):
                index = batch.index + batch.done
                returned.append(Batch(batch.run, index, batch.arguments[batch.done :]))
        self._returned.extendleft(reversed(returned))

    def _may_repeat(
        self,
        worker: Worker,
        run: Run,
        index: int,
        argument: Any,
        exitcode: int | None,
        oom: bool | None,
    ) -> bool:
        """Returns whether a task runs again whose worker died; otherwise, the task fails."""
        if run.abandoned:
            return False
        if worker.late and worker.late != worker.received + 1:
            # It was killed because of a task that has finished.
            return True
        if worker.late:
            text = f"the task ran for longer than {self._timeout} s, and its worker was killed"
            run.fail(index, TimeoutError(text))
            return False
        deaths = run.deaths.pop(index, 0) + 1
        if deaths <= self._retries:
            run.deaths[index] = deaths
            return True
        keywords: dict[str, Any] = {}
        if run.form == "call":
            argument, keywords = argument
        is_tuple = run.form != "one" and isinstance(argument, tuple)
        if is_tuple and len(argument) == 1 and not keywords:
            argument = argument[0]
        workers = "1 worker" if deaths == 1 else f"{deaths} workers"
        name = getattr(run.function, "__qualname__", None) or repr(run.function)
        text = (
            f"{workers} died of this task, the last with exit code {exitcode}"
            f"{' (out of memory)' if oom else ''}: {name} with {_shortened(argument)}"
            f"{f' and {_shortened(keywords)}' if keywords else ''}"
        )
        run.fail(index, WorkerDied(text, run.function, argument, exitcode, oom))
        return False

    def fail_all(self, error: BaseException) -> None:
        runs: dict[int, Run] = {id(run): run for run in self._runs}
        waiting = [*self._returned]
        for worker in self.workers.values():
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


def _shortened(argument: Any) -> str:
    try:
        text = repr(argument)
    except Exception:
        text = f"an argument of type {type(argument).__name__}"
    return text if len(text) <= 200 else f"{text[:197]}..."
