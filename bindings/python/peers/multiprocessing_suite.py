"""Adapter of CPython's ``test._test_multiprocessing``: its queues and pools are Tontine's.

It changes names only. An object that a test needs and Tontine lacks is missing here, too.
"""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.pool
import multiprocessing.queues
import unittest
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tontine
import unit
from scripts import rename_in_scripts

#: Classes of which all tests run. The suite derives classes for processes, threads and managers.
CLASSES = ("TestQueue", "TestPool", "TestPoolWorkerErrors", "TestPoolWorkerLifetime")

#: Tests outside these classes that use a queue or a pool, and classes of such tests.
OTHERS = (
    "TestSimpleQueue",
    "TestPoolNotLeakOnFailure",
    "TestStdinBadfiledescriptor.test_queue_in_process",
    "TestStdinBadfiledescriptor.test_pool_in_process",
    "TestInitializers.test_pool_initializer",
    "TestProcess.test_args_argument",
    "TestProcess.test_child_fd_inflation",
    "TestProcess.test_close",
    "TestProcess.test_lose_target_ref",
    "TestProcess.test_process",
    "TestProcess.test_process_mainthread_native_id",
)


class _Renamed(ModuleType):
    """A module as the suite sees it: with some names of Tontine, otherwise the original."""

    def __init__(self, original: ModuleType, names: dict[str, Any]) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(names)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _rename() -> Any:
    rename_in_scripts({"from multiprocessing import Pool": "from tontine import Pool"})
    suite: Any = importlib.import_module("test._test_multiprocessing")
    queues: dict[str, Any] = dict.fromkeys(("Queue", "SimpleQueue"), tontine.Queue)
    # Its test has several consumers.
    queues["JoinableQueue"] = tontine.WorkQueue
    names: dict[str, Any] = {**queues, "Pool": tontine.Pool}
    for name, ours in names.items():
        # One test imports a module that uses the original module.
        setattr(multiprocessing, name, ours)
        setattr(suite.ProcessesMixin, name, ours)
    submodules = {
        "queues": _Renamed(multiprocessing.queues, queues),
        "pool": _Renamed(multiprocessing.pool, {"Pool": tontine.Pool}),
    }
    suite.multiprocessing = _Renamed(multiprocessing, submodules)
    return suite


# A child process that was spawned imports this module to find the class of its test.
_rename().install_tests_in_module_dict(globals(), multiprocessing.get_start_method())


def _tests(_method: str) -> dict[str, unittest.TestCase]:
    """Returns the tests by their names in the table of differences."""
    found: dict[str, unittest.TestCase] = {}
    for wanted in CLASSES + OTHERS:
        class_name, _, only = wanted.partition(".")
        case = globals().get(f"WithProcesses{class_name}") or globals().get(class_name)
        if case is None:
            continue
        for name in unittest.defaultTestLoader.getTestCaseNames(case):
            if only in ("", name):
                found[f"{class_name}.{name}"] = case(name)
    return found


def groups(method: str) -> list[list[str]]:
    """Returns the names of the tests, each in a group of its own."""
    return [[name] for name in _tests(method)]


def run(method: str, names: list[str], report: Callable[..., None]) -> None:
    """Runs tests, and reports their outcomes."""
    tests = _tests(method)
    for name in names:
        unit.run(tests[name], name, report)
