"""The process of a worker: it runs the tasks that its executor sends."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing import reduction
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from ._errors import Closed, NoMailbox, OwnerDied
from ._tontine import (
    Board,
    Mailbox,
    Sender,
    die_with,
    run_tasks,
    send_raised,
    send_ready,
    send_split,
)

#: Maximum number of bytes of the packets that wait for one worker, and of the results that wait
#: for the executor. A single argument or result may have a quarter of it. Memory is used only as
#: far as it is needed.
MAX_BYTES = 1 << 30

#: Number of bytes that a process can send before the other end has accepted it.
FIRST_CHUNK = 1 << 20


class Packet(NamedTuple):
    """Tasks on their way to a worker."""

    #: Number of the first task at this worker.
    first: int
    size: int
    #: The function, pickled.
    function: bytes
    #: How a task's arguments are passed: see ``run_tasks``.
    form: str
    #: The list of the tasks' arguments, pickled.
    arguments: bytes


class SharedBoard:
    """A board that is passed to a child process, with each start method."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_board, (reduction.DupFd(self.board.fileno()),)


def _open_board(descriptor: Any) -> SharedBoard:
    return SharedBoard(Board.from_fd(descriptor.detach()))


class Assignment(NamedTuple):
    """What a worker needs to know of its executor."""

    #: The executor's process.
    owner: int
    #: Number of this worker, which no other worker of the executor has had.
    worker: int
    board: SharedBoard
    slot: int
    #: Addresses of the mailboxes.
    tasks: str
    results: str
    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    #: Pickle what only cloudpickle can.
    cloudpickle: bool


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker, which the exception has as its cause."""

    __module__ = "tontine"

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def pickler(cloudpickle: bool) -> Callable[[Any], bytes]:
    """Returns the function that pickles."""
    if cloudpickle:
        dumps: Callable[[Any], bytes] = import_module("cloudpickle").dumps
        return dumps
    return _dumps


def _dumps(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def work(assignment: Assignment) -> None:
    """Runs tasks until the executor has no more, or its process ends."""
    # At a terminal, Ctrl-C reaches all processes, and the executor's process ends its workers. A
    # handler is not inherited through exec: programs that a task starts end by Ctrl-C.
    signal.signal(signal.SIGINT, _ignore)
    # A handler of the parent is the parent's.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        die_with(assignment.owner)
    except OSError:
        return
    try:
        with (
            Mailbox(assignment.tasks, cap=MAX_BYTES) as tasks,
            Sender(assignment.results, cap=MAX_BYTES, first_chunk=FIRST_CHUNK) as results,
        ):
            if assignment.initializer is not None:
                assignment.initializer(*assignment.initargs)
            send_ready(results, assignment.worker)
            _run_packets(assignment, tasks, results)
    except (NoMailbox, OwnerDied, Closed):
        # The executor has ended.
        pass


def _ignore(_number: int, _frame: object) -> None:
    pass


def _run_packets(assignment: Assignment, tasks: Mailbox, results: Sender) -> None:
    board, slot, worker = assignment.board.board, assignment.slot, assignment.worker
    dumps = pickler(assignment.cloudpickle)
    dump_error = partial(pickle_error, dumps)
    pickled: bytes | None = None
    function: Any = None
    while message := tasks.recv():
        # The executor repeats what this process has not run, if it dies.
        tasks.ack()
        packet = Packet(*pickle.loads(message))
        del message
        board.read(slot, packet.first)
        try:
            if packet.function != pickled:
                pickled, function = None, pickle.loads(packet.function)
                pickled = packet.function
            arguments = pickle.loads(packet.arguments)
        except BaseException as error:
            if packet.size > 1:
                send_split(results, worker, packet.first, packet.size)
            else:
                send_raised(results, worker, packet.first, dump_error(error))
            continue
        first, form = packet.first, packet.form
        run = partial(run_tasks, board, slot, results, worker)
        if is_stateless(function):
            run(first, function, form, arguments, dumps, dump_error)
        else:
            # Each task has an object of its own, as if it had travelled alone.
            for number, argument in enumerate(arguments, first):
                if number > first:
                    function = pickle.loads(packet.function)
                run(number, function, form, [argument], dumps, dump_error)
            pickled = None
        # Their memory is free while the worker waits.
        del packet, arguments


def is_stateless(function: Any) -> bool:
    """Returns whether a call cannot change what later calls of the object do: for functions, whose
    pickle is a name."""
    return isinstance(function, (FunctionType, BuiltinFunctionType, type))


def pickle_error(dumps: Callable[[Any], bytes], error: BaseException) -> bytes:
    """Pickles an exception with its traceback; its text if the exception cannot be pickled."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    for form in (error, _Copy(error)):
        try:
            pickled = dumps((form, trace))
            pickle.loads(pickled)
            return pickled
        except Exception:
            pass
    return dumps((RuntimeError(repr(error)), trace))


class _Copy:
    """An exception to unpickle without its ``__init__``, which may expect other arguments."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (type(self._error), self._error.args, self._error.__dict__)


def _copy(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def unpickle_error(pickled: bytes) -> BaseException:
    """Returns the exception that a worker pickled."""
    error: BaseException
    error, trace = pickle.loads(pickled)
    error.__cause__ = RemoteTraceback(trace)
    return error


def new_address() -> str:
    """Returns an address that no process has used."""
    return f"@tontine-{os.urandom(8).hex()}"
