"""Fixtures of all tests."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

# A shell ignores SIGINT for its background jobs, and the programs of the tests inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """An address that no process owns."""
    return str(tmp_path / "mailbox")


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def context(request: pytest.FixtureRequest) -> BaseContext:
    """Each start method of ``multiprocessing``."""
    method: str = request.param
    return multiprocessing.get_context(method)
