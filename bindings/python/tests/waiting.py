"""Waits of the tests for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], object], what: str, seconds: float = 40) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"expected within {seconds} s: {what}"
        time.sleep(0.005)


def until_asleep(thread: int | None, process: int | str = "self") -> None:
    """Waits until a thread, named by its native id, sleeps in a wait of this package.

    A wait polls descriptors, or sleeps for a moment; a thread that waits for the lock of the
    interpreter, or for another thread, sleeps on a futex.
    """
    folder = Path(f"/proc/{process}/task/{thread}")

    def is_asleep() -> bool:
        state = folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "S" and "futex" not in folder.joinpath("wchan").read_text()

    until(is_asleep, f"thread {thread} sleeps")
