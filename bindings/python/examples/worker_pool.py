"""An executor that loses workers, and still has every other result.

The program sums the digits of 40 powers of two in two worker processes. After the fifth result it
kills one of them with SIGKILL, as the kernel does if memory is exhausted. The executor starts
another worker and repeats the task that was in progress. One more task ends each worker that runs
it: its future names it.

    python worker_pool.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import as_completed

import tontine


def digit_sum(exponent: int) -> int:
    """Returns the sum of the digits of this power of two."""
    if exponent < 0:
        os.abort()  # as an error in a C extension does
    time.sleep(0.02)  # a longer calculation
    return sum(map(int, str(2**exponent)))


def main() -> None:
    sums: list[int] = []
    with tontine.Executor(2, retries=1) as executor:
        first_pids = executor.pids
        futures = [executor.submit(digit_sum, exponent) for exponent in [*range(40), -1]]
        for future in as_completed(futures):
            try:
                sums.append(future.result())
            except tontine.WorkerDied as death:
                print("failed:", death)
            if len(sums) == 5 and first_pids[0] in executor.pids:
                os.kill(first_pids[0], signal.SIGKILL)
        print("killed worker is replaced:", first_pids[0] not in executor.pids)
    print(f"results: {len(sums)} of 41, total {sum(sums)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
