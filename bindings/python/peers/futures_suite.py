"""Adapter of CPython's ``test.test_concurrent_futures``: its process pool is Tontine's executor.

It changes names only. An attribute that a test needs and Tontine lacks is missing here, too.
"""

from __future__ import annotations

import concurrent.futures.process
import importlib
import pkgutil
import re
import unittest
from collections.abc import Callable
from concurrent import futures
from types import ModuleType
from typing import Any

import tontine
import unit
from scripts import rename_in_scripts

#: What the suite calls the start methods in the names of its classes.
METHODS = {"fork": "Fork", "spawn": "Spawn", "forkserver": "Forkserver"}


def _modules() -> list[ModuleType]:
    """Imports the suite: one module before CPython 3.12, then a package."""
    executor: Any = getattr(tontine, "Executor")
    rename_in_scripts({"from concurrent.futures import Executor": "from tontine import Executor"})
    for module in (futures, concurrent.futures.process):
        setattr(module, "ProcessPoolExecutor", executor)
    suite = importlib.import_module("test.test_concurrent_futures")
    names = [name for _, name, _ in pkgutil.iter_modules(getattr(suite, "__path__", []))]
    modules = [importlib.import_module(f"{suite.__name__}.{name}") for name in names]
    return modules or [suite]


def _tests(method: str) -> dict[str, unittest.TestCase]:
    """Returns the tests by their names in the table of differences."""
    found: dict[str, unittest.TestCase] = {}
    pattern = re.compile(f"ProcessPool{METHODS[method]}(?!server)(.*)")
    for module in _modules():
        for class_name, case in vars(module).items():
            if not isinstance(case, type) or not issubclass(case, unittest.TestCase):
                continue
            matches = pattern.fullmatch(class_name)
            if matches and case.__module__ == module.__name__:
                for name in unittest.defaultTestLoader.getTestCaseNames(case):
                    found[f"{matches[1]}.{name}"] = case(name)
    return found


def groups(method: str) -> list[list[str]]:
    """Returns the names of the tests, each in a group of its own."""
    return [[name] for name in _tests(method)]


def run(method: str, names: list[str], report: Callable[..., None]) -> None:
    """Runs tests, and reports their outcomes."""
    tests = _tests(method)
    for name in names:
        unit.run(tests[name], name, report)
