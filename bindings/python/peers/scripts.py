"""Renames classes in the programs that tests of CPython start with ``python -c``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any


def rename_in_scripts(names: Mapping[str, str]) -> None:
    """Replaces each key by its value in programs that a test starts with ``assert_python_ok``."""
    helper = importlib.import_module("test.support.script_helper")
    original = helper.assert_python_ok

    def assert_python_ok(*args: str, **variables: Any) -> Any:
        for name, ours in names.items():
            args = tuple(argument.replace(name, ours) for argument in args)
        # The suite isolates the program from the environment, and thereby from this package.
        variables.setdefault("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        return original(*args, **variables)

    setattr(helper, "assert_python_ok", assert_python_ok)
