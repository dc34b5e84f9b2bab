"""The programs of the folder ``examples``, and those of the guide to worker processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent
# test_jetstream.py runs the example that needs a server.
EXAMPLES = sorted(path for path in PACKAGE.glob("examples/*.py") if path.name != "jetstream.py")
GUIDE = PACKAGE.parent.parent / "docs" / "guides" / "python-pools.md"


def output(*command: object) -> str:
    """Runs a program, and returns what it printed."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=60, env=environment
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_ends_and_prints(example: Path) -> None:
    if example.name == "numpy_frames.py":
        pytest.importorskip("numpy")
    printed = output(sys.executable, example)
    assert printed
    if example.name == "worker_pool.py":
        assert printed.splitlines() == [
            "failed: 2 workers died of this task, the last with exit code -6: digit_sum with -1",
            "killed worker is replaced: True",
            "results: 40 of 41, total 1194",
        ]


def programs() -> list[tuple[str, str]]:
    """Returns the programs of the guide with their output, if it follows them."""
    return re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", GUIDE.read_text(), re.S)


@pytest.mark.skipif(not GUIDE.exists(), reason="skipped: the guide is not in this copy")
def test_programs_of_guide_print_what_it_says(tmp_path: Path) -> None:
    tasks, *others = programs()
    tmp_path.joinpath("tasks.py").write_text(tasks[0])
    checked = 0
    for code, text in others:
        compile(code, str(GUIDE), "exec")
        missing = [name for name in ("cloudpickle", "joblib") if name in code and not find_spec(name)]
        if text and not missing:
            tmp_path.joinpath("program.py").write_text(code)
            assert output(sys.executable, tmp_path / "program.py") == text, code
            checked += 1
    assert checked >= 3


WITHOUT_SHM = """
import multiprocessing, os, tontine
if __name__ == "__main__":
    assert not os.access("/dev/shm", os.W_OK) or os.statvfs("/dev/shm").f_flag & os.ST_RDONLY
    for method in multiprocessing.get_all_start_methods():
        with tontine.Executor(2, multiprocessing.get_context(method)) as executor:
            print(list(executor.map(abs, range(3))))
    queue = tontine.Queue()
    queue.bind()
    queue.put("object")
    print(queue.get())
"""


def test_shared_memory_folder_is_not_needed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_SHM)
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    if os.geteuid() == 0:
        namespace = ["unshare", "--mount", "--propagation", "private"]
    mount = "mount -t tmpfs -o ro none /dev/shm"
    if shutil.which("unshare") is None or subprocess.run(
        [*namespace, "sh", "-c", mount], capture_output=True
    ).returncode:
        pytest.skip("skipped: no mount namespace can be made here")
    shell = f"{mount} && exec {sys.executable} {program}"
    assert output(*namespace, "sh", "-c", shell) == "[0, 1, 2]\n" * 3 + "object\n"
