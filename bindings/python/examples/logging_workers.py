"""Log records of worker processes, one of which is killed, in one handler.

Each worker logs through a QueueHandler; one thread of the main process passes the records to a
handler. The listener of `logging` cannot handle exceptions of `get`, so the queue does not report
deaths. With `multiprocessing.Queue`, a worker that is killed while it logs stops all others.

    python logging_workers.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import logging
import logging.handlers
import multiprocessing
import os
import signal
import sys

import tontine

WORKERS = 4
RECORDS = 300


def work(records: tontine.Queue[logging.LogRecord], number: int) -> None:
    logger = logging.getLogger("work")
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a forked worker has the parent's handlers, too
    logger.addHandler(logging.handlers.QueueHandler(records))
    for record in range(RECORDS):
        logger.info("worker %d: %d", number, record)
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)


class Counter(logging.Handler):
    """Counts the records; a real program writes them to a file."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def main() -> None:
    counter = Counter()
    records: tontine.Queue[logging.LogRecord] = tontine.Queue(report_deaths=False)
    listener = logging.handlers.QueueListener(records, counter)
    listener.start()
    workers = [
        multiprocessing.Process(target=work, args=(records, number)) for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    listener.stop()  # handles all records that were put before
    killed = sum(worker.exitcode == -signal.SIGKILL for worker in workers)
    print(f"workers killed: {killed}, records: {counter.count} of {WORKERS * RECORDS}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
