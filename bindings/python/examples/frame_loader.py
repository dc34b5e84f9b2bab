"""A loader: worker processes load frames of 1 MiB, and the main process consumes them.

A worker puts NumPy arrays into a queue, whose memory is bounded: a worker that is faster than the
consumer waits. With "multiprocessing" the same program uses a `multiprocessing.Queue`, bounded to
two frames of each worker, to compare speed and memory.

    python frame_loader.py [fork | spawn | forkserver | multiprocessing] [number of frames]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

import numpy

import tontine

WORKERS = 4
SHAPE = (512, 512, 4)


def load(number: int) -> numpy.ndarray[Any, Any]:
    """Makes a frame, as if it were read from a file."""
    return numpy.full(SHAPE, number % 256, numpy.uint8)


def work(frames: Any, first: int, count: int) -> None:
    """Loads every `WORKERS`th frame."""
    for number in range(first, count, WORKERS):
        frames.put((number, load(number)))


def brightness(frame: numpy.ndarray[Any, Any]) -> float:
    return float(frame.mean())


def run(frames: Any, count: int) -> None:
    workers = [
        multiprocessing.Process(target=work, args=(frames, first, count), daemon=True)
        for first in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    start = time.perf_counter()
    for _ in range(count):
        number, frame = frames.get()
        assert brightness(frame) == number % 256
    print(f"{count / (time.perf_counter() - start):,.0f} frames per second")
    for worker in workers:
        worker.join()


def main(way: str = "fork", count: str = "200") -> None:
    frames: Any
    if way == "multiprocessing":
        frames = multiprocessing.Queue(maxsize=2 * WORKERS)
    else:
        multiprocessing.set_start_method(way)
        frames = tontine.Queue()
    run(frames, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
