"""Adapter of joblib's ``joblib.test.test_parallel``: its backend "loky" is Tontine's.

It changes names only. A test that passes without a call of the backend is not applicable; a test
that names only other backends does not run.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

import joblib.parallel
import pytest

from tontine.joblib import TontineBackend

MODULE = "joblib.test.test_parallel"

#: Names of tests of other backends only.
_OTHERS = re.compile(r"^(?!.*loky).*\[.*(multiprocessing|threading|sequential|spawn)")

#: Number of calls of ``configure`` during the test.
_uses = 0


def _rename() -> None:
    backends: Any = importlib.import_module("joblib._parallel_backends")
    backends.LokyBackend = TontineBackend
    TontineBackend.__name__ = "LokyBackend"
    joblib.parallel.BACKENDS["loky"] = TontineBackend
    configure = TontineBackend.configure

    def count(*arguments: Any, **keywords: Any) -> int:
        global _uses
        _uses += 1
        return configure(*arguments, **keywords)

    setattr(TontineBackend, "configure", count)


class _Plugin:
    """Selects tests, and reports what happens to them."""

    def __init__(self, names: list[str], report: Callable[..., None] | None) -> None:
        self.names = set(names)
        self.report = report
        self.collected: list[list[str]] = []
        self.outcome = ("passed", "")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not _OTHERS.search(item.name)]
        if self.names:
            items[:] = [item for item in items if item.name in self.names]
        function: Callable[[pytest.Item], str] = lambda item: item.name.partition("[")[0]
        self.collected = [[item.name for item in group] for _, group in groupby(items, function)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        global _uses
        _uses = 0
        self.outcome = ("passed", "")
        if self.report is not None:
            self.report(nodeid.partition("::")[2], "started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.outcome = ("skipped", str(report.longrepr))
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.outcome = ("failed", crash.message.splitlines()[0] if crash else "")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        kind, reason = self.outcome
        if kind == "passed" and not _uses:
            kind, reason = "skipped", "does not use the backend"
        if self.report is not None:
            self.report(nodeid.partition("::")[2], kind, reason)


def _pytest(*options: str, plugin: _Plugin) -> None:
    _rename()
    arguments = ["-q", "-p", "no:cacheprovider", "--tb=short", "--pyargs", MODULE, *options]
    pytest.main(arguments, plugins=[plugin])


def groups(_method: str) -> list[list[str]]:
    """Returns the names of the tests, one group for each function."""
    plugin = _Plugin([], None)
    _pytest("--collect-only", "-qq", plugin=plugin)
    return plugin.collected


def run(_method: str, names: list[str], report: Callable[..., None]) -> None:
    """Runs tests, and reports their outcomes."""
    _pytest(plugin=_Plugin(names, report))
