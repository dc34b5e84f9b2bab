"""Kills workers of an executor at random moments, and counts how often each task ran.

Prints the numbers of tasks, kills, results, tasks that ran twice or more, and tasks that failed with
``WorkerDied``. Exits with status 1 if a result is missing or wrong, or if more tasks ran again than
workers were killed.

    python kills.py [--tasks 100000] [--kills 200] [--workers 4] [--seed 1] [--method fork]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter

import tontine

_log = -1


def open_log(path: str) -> None:
    global _log
    _log = os.open(path, os.O_WRONLY | os.O_APPEND)


def count_run(number: int) -> int:
    """Appends its number to a file: one write is never torn by a kill."""
    os.write(_log, number.to_bytes(8, "little"))
    return number * 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", default="fork")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    tasks, kills, died = options.tasks, 0, 0
    context = multiprocessing.get_context(options.method)
    start = time.perf_counter()
    with tempfile.NamedTemporaryFile() as log:
        with tontine.Executor(
            options.workers, context, open_log, (log.name,), retries=options.kills
        ) as executor:
            futures = [executor.submit(count_run, number) for number in range(tasks // 2)]
            mapped = executor.map(count_run, range(tasks // 2, tasks))
            # A kill follows each share of the results.
            share = max(1, tasks // (options.kills + 1))
            wrong = 0
            for number in range(tasks):
                if kills < min(options.kills, number // share):
                    time.sleep(chance.random() * 2e-3)
                    if pids := executor.pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(chance.choice(pids), signal.SIGKILL)
                            kills += 1
                try:
                    result = futures[number].result() if number < tasks // 2 else next(mapped)
                    wrong += result != number * 3
                except tontine.WorkerDied:
                    died += 1
        data = log.read()
    runs = Counter(int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8))
    missing = sum(1 for number in range(tasks) if not runs[number]) - died
    repeated = sum(count - 1 for count in runs.values())
    print(
        f"{options.method}: {tasks} tasks, {kills} kills: {tasks - wrong - died} results, {wrong} "
        f"wrong, {missing} missing, {died} died, {repeated} repeated runs; "
        f"{time.perf_counter() - start:.1f} s"
    )
    return int(bool(wrong or missing or repeated > kills))


if __name__ == "__main__":
    sys.exit(main())
