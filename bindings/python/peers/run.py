"""Runs tests of other packages with Tontine's classes instead of theirs.

Each test of CPython runs in a process of its own, and so do the tests of each function of joblib. A
test that hangs is stopped after a timeout. A test that does not pass must be listed in README.md
next to this file, and a listed test must not pass.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import differences

FOLDER = Path(__file__).parent

#: Maximum number of seconds in which a process prints its stacks.
_PRINT_TIMEOUT = 10

METHODS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True)
class Suite:
    """Tests of another package."""

    #: The module of the adapter.
    adapter: str
    #: The module of the tests.
    module: str
    methods: tuple[str, ...] = METHODS


SUITES = {
    "multiprocessing": Suite("multiprocessing_suite", "test._test_multiprocessing"),
    "concurrent.futures": Suite("futures_suite", "test.test_concurrent_futures"),
    "joblib": Suite("joblib_suite", "joblib.test.test_parallel", METHODS[:1]),
}


@dataclass
class Outcome:
    """What one process had to say."""

    #: "passed", "failed" or "skipped".
    kind: str
    reason: str
    #: The end of what it printed.
    output: str = ""


class Runner:
    """Starts the process of each test."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._running: set[int] = set()

    def stop(self, _signal: int, _frame: object) -> None:
        """Ends the program with all processes of tests: the handler of signals."""
        for pid in list(self._running):
            _kill(pid)
        os._exit(1)

    def groups(self, suite: str, method: str) -> list[list[str]]:
        """Returns the names of the tests of a suite; those of a group may share a process."""
        lines, output, _ = self._start(suite, method, [])
        if not lines:
            raise RuntimeError(f"the adapter of {suite} fails:\n{output}")
        groups: list[list[str]] = lines[0]
        return groups

    def run(self, suite: str, method: str, group: list[str]) -> dict[str, Outcome]:
        """Runs the tests of a group."""
        outcomes: dict[str, Outcome] = {}
        while pending := [name for name in group if name not in outcomes]:
            lines, output, end = self._start(suite, method, pending)
            # The end concerns the test that had started, or the first if none had.
            ended = pending[0]
            for name, kind, *reason in lines:
                if kind == "started":
                    ended = name
                else:
                    outcomes[name] = Outcome(kind, reason[0], output)
            if ended not in outcomes:
                outcomes[ended] = Outcome("failed", end, output)
        return outcomes

    def _start(self, suite: str, method: str, tests: list[str]) -> tuple[list[Any], str, str]:
        """Starts a process, and returns its results, the end of its output, and how it ended."""
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, "result")
            result.touch()
            with open(Path(folder, "output"), "w+b") as output:
                arguments = [SUITES[suite].adapter, method, str(result), *tests]
                process = subprocess.Popen(
                    [sys.executable, str(FOLDER / "one.py"), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    start_new_session=True,
                )
                self._running.add(process.pid)
                end = self._wait(process, result)
                # With everything that it has started.
                _kill(process.pid)
                process.wait()
                self._running.discard(process.pid)
                output.seek(0)
                text = output.read().decode(errors="replace")[-4000:]
            return [json.loads(line) for line in result.read_text().splitlines()], text, end

    def _wait(self, process: subprocess.Popen[bytes], result: Path) -> str:
        """Waits until a process ends, or until it reports nothing for the timeout."""
        while True:
            idle = time.time() - result.stat().st_mtime
            try:
                code = process.wait(max(0.0, self.timeout - idle))
                return f"the process ends with code {code}"
            except subprocess.TimeoutExpired:
                if time.time() - result.stat().st_mtime > self.timeout:
                    # Lets it print where its threads are.
                    process.send_signal(signal.SIGABRT)
                    process.wait(_PRINT_TIMEOUT)
                    return f"hangs for {self.timeout:.0f} s"


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def missing(suite: str) -> str | None:
    """Returns why a suite cannot run here."""
    module = SUITES[suite].module
    try:
        if importlib.util.find_spec(module) is not None:
            return None
    except ModuleNotFoundError:
        pass
    return f"{module} is not installed with CPython {sys.version.split()[0]}"


def run_suite(runner: Runner, suite: str, method: str, options: argparse.Namespace) -> bool:
    """Runs the tests of a suite with a start method. Returns whether the table describes them."""
    rows = [row for row in differences.read() if row.applies(suite, method)]
    groups = [
        [name for name in group if options.test in name] for group in runner.groups(suite, method)
    ]
    counts: Counter[str] = Counter()
    truthful = True
    with ThreadPoolExecutor(options.jobs) as threads:
        results = threads.map(lambda group: runner.run(suite, method, group), groups)
        for name, outcome in (item for result in results for item in result.items()):
            listed = any(row.names(name) for row in rows)
            counts["listed" if outcome.kind == "failed" and listed else outcome.kind] += 1
            if options.verbose:
                print(f"{outcome.kind} {name}: {outcome.reason}", flush=True)
            if outcome.kind == "failed" and not listed:
                truthful = False
                print(f"{suite}, {method}: {name} fails, and is not listed: {outcome.reason}")
                print(outcome.output)
            elif outcome.kind != "failed" and listed:
                truthful = False
                print(f"{suite}, {method}: {name} is listed, but {outcome.kind}")
    print(
        f"{suite}, {method}: {counts['passed']} passed, {counts['listed']} listed, "
        f"{counts['skipped']} not applicable, {counts['failed']} not listed",
        flush=True,
    )
    return truthful


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(SUITES))
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--test", default="", help="run the tests whose names contain this")
    parser.add_argument("--jobs", type=int, default=2 * len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=60, help="seconds for each test")
    parser.add_argument("--verbose", action="store_true", help="print each outcome")
    options = parser.parse_args()
    runner = Runner(options.timeout)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop)
    truthful = True
    for suite in options.suite or SUITES:
        if (why := missing(suite)) is not None:
            print(f"skipped: {suite}: {why}")
            continue
        for method in options.method or SUITES[suite].methods:
            truthful &= run_suite(runner, suite, method, options)
    return 0 if truthful else 1


if __name__ == "__main__":
    sys.exit(main())
