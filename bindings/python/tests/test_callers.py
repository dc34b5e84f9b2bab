"""What callers of ``Executor`` and ``Pool`` see: exceptions, callbacks and the main module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tontine import Executor, Pool


def square(number: int) -> int:
    return number * number


def test_callback_that_raises_disturbs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Pool(1) as pool:
        assert pool.apply_async(square, (2,), callback=lambda _: 1 // 0).get() == 4
        assert pool.apply_async(square, (2,), callback=leave).get() == 4
        assert pool.apply(square, (3,)) == 9
    with Executor(1) as executor:
        for call in (executor.submit(square, 2), executor.submit(divmod, 1, 0)):
            call.add_done_callback(leave)
        assert executor.submit(square, 3).result() == 9
    errors = capfd.readouterr().err
    assert "ZeroDivisionError" in errors and errors.count("SystemExit") == 3


def leave(_: object) -> None:
    sys.exit("as requested")


def test_stop_iteration_of_task_does_not_end_results() -> None:
    with Executor(1) as executor, Pool(1) as pool:
        for results in (executor.map(next, [iter([]), iter([1])]), pool.imap(next, [iter([])])):
            with pytest.raises(RuntimeError, match="a task raised StopIteration"):
                next(results)


class Refused(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code


def refuse(_: object) -> None:
    raise Refused(403, reason="forbidden")


def test_exception_keeps_its_class() -> None:
    with Executor(1) as executor, pytest.raises(Refused, match="^403 forbidden$") as raised:
        executor.submit(refuse, 1).result()
    assert raised.value.code == 403 and "in refuse" in str(raised.value.__cause__)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_executor_of_main_module_starts_no_workers_in_workers(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, sys, time, tontine\n"
        f"executor = tontine.Executor(1, multiprocessing.get_context({method!r}))\n"
        "if len(sys.argv) > 1: executor.submit(abs, 1)\n"
        "def has_workers():\n"
        # Long enough for the second attempt to start a worker.
        "    end = time.monotonic() + 0.5\n"
        "    while not executor.pids and time.monotonic() < end: time.sleep(0.01)\n"
        "    return bool(executor.pids)\n"
        "if __name__ == '__main__':\n"
        "    print(executor.submit(has_workers).result())\n"
    )
    for arguments, out, text in [
        ([], "False\n", ""),
        (["use"], "", "a worker that imports the main module runs it"),
    ]:
        command = [sys.executable, str(program), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.stdout == out and text in ended.stderr, ended
