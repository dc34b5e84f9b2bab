"""Runs single tests of ``unittest``."""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any


class _Result(unittest.TestResult):
    """Reports a failure, and ends the process: clean-up that needs a success could hang."""

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__()
        self._report = report

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._end(self.errors[-1][1])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._end(self.failures[-1][1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._end((self.errors + self.failures)[-1][1])

    def _end(self, trace: str) -> None:
        lines = [line for line in trace.splitlines() if line and not line.startswith(" ")]
        self._report("failed", lines[-1] if lines else trace)
        print(trace, file=sys.__stderr__, flush=True)
        os._exit(1)


def run(test: unittest.TestCase, name: str, report: Callable[..., None]) -> None:
    """Runs a test with the fixtures of its class and its module, and reports its outcome."""
    report(name, "started")
    result = _Result(partial(report, name))
    unittest.TestSuite([test]).run(result)
    if result.unexpectedSuccesses:
        return report(name, "failed", "succeeds, and the suite expects a failure")
    for _, reason in result.skipped:
        return report(name, "skipped", reason)
    # CPython's own runner reports this as a failure, too.
    if importlib.import_module("test.support").environment_altered:
        return report(name, "failed", "leaves a process, a thread or a warning behind")
    return report(name, "passed", "")
