"""CPython's own tests of ``multiprocessing.Queue``, on ``tontine.Queue``.

They run where the interpreter has its test suite. Left out are the tests that expect several
consumers of one queue, or a feeder thread.
"""

from __future__ import annotations

import multiprocessing
import unittest
from typing import Any

import pytest
import tontine

suite: Any = pytest.importorskip("test._test_multiprocessing")


class Acknowledging(tontine.Queue[Any]):
    """Acknowledges each object when it is received, like ``multiprocessing.Queue``."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        received = super().get(block, timeout)
        self.task_done()
        return received


class TestQueue(suite._TestQueue, unittest.TestCase):  # type: ignore[misc]
    """The tests of the suite, with this package's queue."""

    TYPE = "processes"
    Process = multiprocessing.Process
    Event = staticmethod(multiprocessing.Event)
    Queue: Any = tontine.Queue

    # A feeder thread would print what `put` raises.
    test_queue_feeder_donot_stop_onexc = None
    test_queue_feeder_on_queue_feeder_error = None

    # These make queues of `multiprocessing`, whatever the class is.
    test_timeout = None
    test_no_import_lock_contention = None
    test_closed_queue_put_get_exceptions = None

    def test_put(self) -> None:
        # The last object that the child gets is not acknowledged by a next `get`.
        self.Queue = Acknowledging
        super().test_put()

    def test_task_done(self) -> None:
        # The suite has four consumers.
        queue = tontine.Queue[Any]()
        worker = multiprocessing.Process(target=self._test_task_done, args=(queue,), daemon=True)
        worker.start()
        for number in range(10):
            queue.put(number)
        queue.join()
        assert queue.qsize() == 0
        queue.put(None)
        worker.join()
        queue.close()
