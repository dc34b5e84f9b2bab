"""A pool that loses a worker, and still returns every result.

The program sums the digits of 40 powers of two in two worker processes. After the fifth result it
kills one of them with SIGKILL, as the kernel does if memory is exhausted. The pool starts another
worker and repeats the task that was in progress.

    python worker_pool.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

import tontine


def digit_sum(exponent: int) -> tuple[int, int]:
    """Returns the exponent, and the sum of the digits of this power of two."""
    time.sleep(0.02)  # a longer calculation
    return exponent, sum(map(int, str(2**exponent)))


def main() -> None:
    with tontine.Pool(2) as pool:
        first_pids = pool.pids
        sums: dict[int, int] = {}
        for exponent, digits in pool.imap_unordered(digit_sum, range(40)):
            sums[exponent] = digits
            if len(sums) == 5:
                os.kill(first_pids[0], signal.SIGKILL)
        replaced = set(first_pids) - set(pool.pids)
    print(f"workers killed and replaced: {len(replaced)}")
    print(f"results: {len(sums)} of 40, total {sum(sums.values())}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
