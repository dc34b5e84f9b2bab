"""Compares Tontine with other ways to pass messages between two Python processes.

Each row is a ratio of messages per second, ours divided by the rival's. Both are measured in turn,
in fresh processes of one run; the row shows the median of the pairs' ratios and a 95 % interval of
that median (order statistics). Rows whose rival is not installed are skipped. A row of memory is a
ratio of peaks, of which less is better.

    python compare.py [--pairs 21]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from math import comb
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy
import tontine

MESSAGES, FRAMES = 200_000, 1000
MESSAGE = bytes(64)
FRAME = numpy.arange(1 << 17, dtype=numpy.float64)

#: A sender and a receiver, which are passed the same arguments and the number of messages. The
#: receiver returns the seconds from the first message to the last.
Pair = tuple[Callable[..., None], Callable[..., float], Callable[[], tuple[Any, ...]]]


def timed(receive: Callable[[], object], count: int) -> float:
    receive()
    start = time.perf_counter()
    for _ in range(count - 1):
        receive()
    return time.perf_counter() - start


def rate(pair: Pair, count: int, senders: int) -> float:
    """Returns the messages per second of a receiver in this process and senders in others."""
    send, receive, open_ = pair
    arguments = open_()
    context = multiprocessing.get_context("fork")
    share = count // senders
    processes = [context.Process(target=send, args=(*arguments, share)) for _ in range(senders)]
    for process in processes:
        process.start()
    seconds = receive(*arguments, share * senders)
    for process in processes:
        process.join()
    return (share * senders - 1) / seconds


# Queues of objects.


def put_all(queue: Any, count: int) -> None:
    for _ in range(count):
        queue.put(MESSAGE)


def get_all(queue: Any, count: int) -> float:
    return timed(queue.get, count)


def tontine_queue() -> tuple[Any, ...]:
    queue: tontine.Queue[bytes] = tontine.Queue()
    queue.bind()
    return (queue,)


QUEUE: Pair = (put_all, get_all, tontine_queue)
MP_QUEUE: Pair = (put_all, get_all, lambda: (multiprocessing.Queue(),))


def put_tuples(queue: Any, count: int) -> None:
    for number in range(count):
        queue.put(("name", number, 2.5))


def put_arrays(queue: Any, count: int) -> None:
    for _ in range(count):
        queue.put(FRAME)


def get_arrays(queue: Any, count: int) -> float:
    return timed(lambda: look(queue.get()), count)


TUPLES: Pair = (put_tuples, get_all, tontine_queue)
MP_TUPLES: Pair = (put_tuples, get_all, lambda: (multiprocessing.Queue(),))
ARRAYS: Pair = (put_arrays, get_arrays, tontine_queue)
MP_ARRAYS: Pair = (put_arrays, get_arrays, lambda: (multiprocessing.Queue(),))


# Bytes.


def mailbox() -> tuple[Any, ...]:
    address = f"@bench-{os.getpid()}-{time.monotonic_ns()}"
    return address, tontine.Mailbox(address, report_deaths=True)


def send_all(address: str, _: Any, count: int) -> None:
    with tontine.Sender(address) as sender:
        for _ in range(count):
            sender.send(MESSAGE)
        sender.wait_acked(60)


def recv_all(_: str, mailbox: tontine.Mailbox, count: int) -> float:
    with mailbox:
        seconds = timed(mailbox.recv, count)
        mailbox.ack()
        return seconds


def send_batches(address: str, _: Any, count: int) -> None:
    with tontine.Sender(address) as sender:
        for _ in range(count // 100):
            sender.send_batch([MESSAGE] * 100)
        sender.wait_acked(60)


def recv_batches(_: str, mailbox: tontine.Mailbox, count: int) -> float:
    with mailbox:
        received = len(mailbox.recv_batch())
        start = time.perf_counter()
        while received < count:
            received += len(mailbox.recv_batch())
        mailbox.ack()
        return time.perf_counter() - start


def pipe_send(_: Any, writer: Any, count: int) -> None:
    for _ in range(count):
        writer.send_bytes(MESSAGE)


def pipe_recv(reader: Any, _: Any, count: int) -> float:
    return timed(reader.recv_bytes, count)


def zmq_send(address: str, received: Any, count: int) -> None:
    zmq = import_module("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        for _ in range(count):
            socket.send(MESSAGE)
        # A sender that closes earlier sometimes loses messages.
        received.wait(60)


def zmq_recv(address: str, received: Any, count: int) -> float:
    zmq = import_module("zmq")
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVTIMEO, 20_000)
        socket.bind(address)
        seconds = timed(socket.recv, count)
        received.set()
        return seconds


SINGLE: Pair = (send_all, recv_all, mailbox)
BATCHED: Pair = (send_batches, recv_batches, mailbox)
PIPE: Pair = (pipe_send, pipe_recv, lambda: multiprocessing.Pipe(duplex=False))
ZMQ: Pair = (
    zmq_send,
    zmq_recv,
    lambda: (f"ipc://@bench-{time.monotonic_ns()}", multiprocessing.Event()),
)


# Frames of 1 MiB. Each receiver reads one number of every page.


def look(frame: numpy.ndarray[Any, Any]) -> float:
    return float(frame[::512].sum())


def send_frames(address: str, _: Any, count: int) -> None:
    with tontine.Sender(address) as sender:
        for _ in range(count):
            sender.send(FRAME)
        sender.wait_acked(60)


def recv_frames(_: str, mailbox: tontine.Mailbox, count: int) -> float:
    def receive() -> None:
        with mailbox.recv_view() as view:
            look(numpy.frombuffer(view))

    with mailbox:
        return timed(receive, count)


def share_frames(names: Any, free: Any, count: int) -> None:
    """Reuses the blocks that the receiver has returned."""
    blocks = [shared_memory.SharedMemory(create=True, size=FRAME.nbytes) for _ in range(16)]
    by_name = {block.name: block for block in blocks}
    for name in by_name:
        free.put(name)
    for _ in range(count):
        name = free.get()
        numpy.copyto(numpy.ndarray(FRAME.shape, FRAME.dtype, by_name[name].buf), FRAME)
        names.put(name)
    for _ in blocks:
        free.get()
    for block in blocks:
        block.close()
        block.unlink()


def shared_frames(names: Any, free: Any, count: int) -> float:
    blocks: dict[str, shared_memory.SharedMemory] = {}

    def receive() -> None:
        name = names.get()
        if name not in blocks:
            blocks[name] = shared_memory.SharedMemory(name)
        look(numpy.ndarray(FRAME.shape, FRAME.dtype, blocks[name].buf))
        free.put(name)

    seconds = timed(receive, count)
    for block in blocks.values():
        block.close()
    return seconds


def create_frames(names: Any, count: int) -> None:
    """Creates a block for each frame."""
    for _ in range(count):
        block = shared_memory.SharedMemory(create=True, size=FRAME.nbytes)
        numpy.copyto(numpy.ndarray(FRAME.shape, FRAME.dtype, block.buf), FRAME)
        names.put(block.name)
        block.close()


def created_frames(names: Any, count: int) -> float:
    def receive() -> None:
        block = shared_memory.SharedMemory(names.get())
        look(numpy.ndarray(FRAME.shape, FRAME.dtype, block.buf))
        block.close()
        block.unlink()

    return timed(receive, count)


VIEWS: Pair = (send_frames, recv_frames, mailbox)
REUSED: Pair = (
    share_frames,
    shared_frames,
    lambda: (multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()),
)
CREATED: Pair = (create_frames, created_frames, lambda: (multiprocessing.SimpleQueue(),))

#: Name, our way, the rival's way, number of messages, and number of senders.
ROWS: list[tuple[str, Pair, Pair, int, int]] = [
    ("Queue ÷ multiprocessing.Queue", QUEUE, MP_QUEUE, MESSAGES, 1),
    ("Queue ÷ m.Queue, small tuples, 1 producer", TUPLES, MP_TUPLES, MESSAGES, 1),
    ("Queue ÷ m.Queue, small tuples, 4 producers", TUPLES, MP_TUPLES, MESSAGES, 4),
    ("Queue ÷ m.Queue, 1 MiB arrays, 1 producer", ARRAYS, MP_ARRAYS, FRAMES, 1),
    ("Queue ÷ m.Queue, 1 MiB arrays, 4 producers", ARRAYS, MP_ARRAYS, FRAMES, 4),
    ("Mailbox ÷ multiprocessing.Pipe", SINGLE, PIPE, MESSAGES, 1),
    ("Mailbox ÷ pyzmq ipc, single calls", SINGLE, ZMQ, MESSAGES, 1),
    ("Mailbox ÷ pyzmq ipc, our calls batched", BATCHED, ZMQ, MESSAGES, 1),
    ("1 MiB frames ÷ shared_memory, blocks reused", VIEWS, REUSED, FRAMES, 1),
    ("1 MiB frames ÷ shared_memory, a block per frame", VIEWS, CREATED, FRAMES, 1),
]


# Memory of a whole program: `examples/frame_loader.py`.


def memory(processes: set[int]) -> int:
    """Returns the bytes that processes take: each one's share of private memory and files, and
    every object of shared memory once, with all its pages."""
    total = 0
    shared: dict[str, int] = {}
    for process in processes:
        folder = Path(f"/proc/{process}")
        try:
            rollup, maps = (folder / "smaps_rollup").read_text(), (folder / "maps").read_text()
        except OSError:
            continue  # It has ended.
        sizes = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        total += sum(int(sizes[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_File"))
        for line in maps.splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith(("/memfd:", "/dev/shm/")):
                first, last = (int(end, 16) for end in fields[0].split("-"))
                shared[fields[4]] = last - first
    return total + sum(shared.values())


def tree(process: int) -> set[int]:
    """Returns a process and its descendants."""
    found: set[int] = set()
    new = {process}
    while new:
        found |= new
        children: set[int] = set()
        for parent in new:
            with contextlib.suppress(OSError):
                children |= set(
                    map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
                )
        new = children - found
    return found


def loader_peak(way: str) -> float:
    """Returns the largest sample of the loader's memory in MiB."""
    program = Path(__file__).parents[1] / "examples" / "frame_loader.py"
    command = [sys.executable, str(program), way, "1000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory(tree(process.pid)))
            time.sleep(0.005)
    assert process.returncode == 0
    return peak / (1 << 20)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def interval(values: list[float]) -> tuple[float, float]:
    """Returns a 95 % interval of the median from order statistics."""
    ordered, count, below = sorted(values), len(values), 0
    covered = 2**count
    while (less := covered - 2 * comb(count, below)) >= 0.95 * 2**count:
        covered, below = less, below + 1
    first = max(below - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def import_times(pairs: int) -> Iterator[float]:
    """Yields the milliseconds that the import takes longer than that of multiprocessing's queues."""
    program = "import time; a = time.perf_counter(); {}; print((time.perf_counter() - a) * 1e3)"
    for _ in range(pairs):
        command = [sys.executable, "-c", program.format("import tontine")]
        yield float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=21)
    pairs = parser.parse_args().pairs
    for name, ours, rival, count, senders in ROWS:
        if rival is ZMQ:
            try:
                import_module("zmq")
            except ImportError:
                print(f"{name:50} skipped: pyzmq is not installed")
                continue
        ratios, own = [], []
        for number in range(pairs):
            # Each comes first in every other pair.
            order = (ours, rival) if number % 2 else (rival, ours)
            rates = {id(pair): rate(pair, count, senders) for pair in order}
            own.append(rates[id(ours)])
            ratios.append(rates[id(ours)] / rates[id(rival)])
        low, high = interval(ratios)
        print(f"{name:50} {median(ratios):6.2f} [{low:.2f}, {high:.2f}]  {median(own):12,.0f}/s")
    peaks = [(loader_peak("fork"), loader_peak("multiprocessing")) for _ in range(pairs)]
    ratios = [ours / rival for ours, rival in peaks]
    low, high = interval(ratios)
    own_peak = median([ours for ours, _ in peaks])
    name = "loader's peak memory ÷ with multiprocessing"
    print(f"{name:50} {median(ratios):6.2f} [{low:.2f}, {high:.2f}]  {own_peak:12,.0f} MiB")
    times = list(import_times(pairs))
    low, high = interval(times)
    print(f"{'import tontine':50} {median(times):6.1f} [{low:.1f}, {high:.1f}] ms")


if __name__ == "__main__":
    main()
