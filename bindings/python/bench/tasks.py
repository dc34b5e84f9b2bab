"""Compares pools and executors with those of the standard library, on tasks that do nothing.

Each row is a ratio of tasks per second, ours divided by the rival's. Both are measured in turn, in
one run; the row shows the median of the pairs' ratios and a 95 % interval of that median (order
statistics), and our microseconds per task.

    python tasks.py [--pairs 21] [--workers 2]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import tontine
from compare import interval, median

MANY, FEW = 100_000, 3000


def square(number: int) -> int:
    return number * number


def map_all(pool: Any) -> int:
    return len(pool.map(square, range(MANY)))


def map_single(pool: Any) -> int:
    return len(pool.map(square, range(FEW), chunksize=1))


def map_executor(executor: Any) -> int:
    return sum(1 for _ in executor.map(square, range(FEW)))


def submit_all(executor: Any) -> int:
    futures = [executor.submit(square, number) for number in range(FEW)]
    return sum(1 for future in futures if future.result() is not None)


def submit_each(executor: Any) -> int:
    return sum(1 for number in range(FEW // 10) if executor.submit(square, number).result() >= 0)


def apply_each(pool: Any) -> int:
    return sum(1 for number in range(FEW // 10) if pool.apply(square, (number,)) >= 0)


#: A name, the work, and whether it is a pool's.
ROWS: list[tuple[str, Callable[[Any], int], bool]] = [
    ("Pool.map ÷ multiprocessing.Pool.map", map_all, True),
    ("the same, both with chunksize=1", map_single, True),
    ("Pool.apply ÷ multiprocessing.Pool.apply, one at a time", apply_each, True),
    ("Executor.map ÷ ProcessPoolExecutor.map", map_executor, False),
    ("Executor.submit ÷ ProcessPoolExecutor.submit", submit_all, False),
    ("the same, one at a time", submit_each, False),
]


def seconds_per_task(work: Callable[[Any], int], crew: Any) -> float:
    start = time.perf_counter()
    count = work(crew)
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    workers = options.workers
    with tontine.Pool(workers) as pool, multiprocessing.Pool(workers) as rival_pool:
        with tontine.Executor(workers) as executor, ProcessPoolExecutor(workers) as rival:
            for name, work, is_pool in ROWS:
                ours, other = (pool, rival_pool) if is_pool else (executor, rival)
                work(ours), work(other)
                ratios, own = [], []
                for number in range(options.pairs):
                    # Each comes first in every other pair.
                    order = (ours, other) if number % 2 else (other, ours)
                    seconds = {id(crew): seconds_per_task(work, crew) for crew in order}
                    own.append(seconds[id(ours)])
                    ratios.append(seconds[id(other)] / seconds[id(ours)])
                low, high = interval(ratios)
                print(
                    f"{name:56} {median(ratios):6.2f} [{low:.2f}, {high:.2f}]"
                    f"  {median(own) * 1e6:8.2f} µs"
                )


if __name__ == "__main__":
    main()
