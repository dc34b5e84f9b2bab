"""Runs tests of a suite in this process: ``one.py SUITE METHOD RESULT [TEST…]``.

Appends lines of JSON to the file RESULT: the start of each test and its outcome. Without a test,
the only line lists the suite's tests: groups, each of which runs in a process of its own.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    suite_name, method, result, *names = sys.argv[1:]
    # The runner sends SIGABRT if a test hangs.
    faulthandler.enable()
    multiprocessing.set_start_method(method)
    suite: Any = importlib.import_module(suite_name)

    def report(*line: str) -> None:
        with Path(result).open("a") as file:
            print(json.dumps(line), file=file)

    if names:
        suite.run(method, names, report)
    else:
        Path(result).write_text(json.dumps(suite.groups(method)))


if __name__ == "__main__":
    main()
