"""A child that is forked while other threads of its parent use a queue."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def run(path: Path, program: str) -> str:
    path.write_text(textwrap.dedent(program))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(path)],
        capture_output=True, text=True, timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_put_and_get_import_nothing(tmp_path: Path) -> None:
    # A child that was forked while a thread imported a module waited in its own import of it.
    program = """
        import sys, tontine
        queue = tontine.Queue()
        before = set(sys.modules)
        queue.put(1)
        queue.get()
        print(sorted(set(sys.modules) - before))
        """
    assert run(tmp_path / "imports.py", program) == "[]\n"


def test_children_forked_while_threads_put_and_get_do_not_hang(tmp_path: Path) -> None:
    program = """
        import os, signal, threading, tontine

        queue, results = tontine.Queue(max_bytes=1 << 20), tontine.Queue()
        ended = threading.Event()

        def put():
            while not ended.is_set():
                try:
                    queue.put(bytes(1000), timeout=1)
                except tontine.Full:
                    pass

        def get():
            while not ended.is_set():
                try:
                    queue.get(timeout=0.1)
                except tontine.Empty:
                    pass

        threads = [threading.Thread(target=target) for target in (put, get)]
        for thread in threads:
            thread.start()
        children = []
        for number in range(20):
            pid = os.fork()
            if not pid:
                signal.alarm(30)  # ends a child that hangs
                results.put(number)
                results.close()
                os._exit(0)
            children.append(pid)
        print([os.waitpid(pid, 0)[1] for pid in children] == [0] * 20)
        print(sorted(results.get(timeout=0) for _ in children) == list(range(20)))
        ended.set()
        for thread in threads:
            thread.join()
        """
    assert run(tmp_path / "forks.py", program) == "True\nTrue\n"


def test_sender_of_main_process_is_closed_at_its_end(tmp_path: Path) -> None:
    # Without `multiprocessing`, whose finalizers close the sender otherwise.
    program = """
        import os, sys, tontine
        queue = tontine.Queue()
        if not os.fork():
            queue.put(1)
            sys.exit()
        os.wait()
        print(queue.get(timeout=0))
        try:
            queue.get(timeout=0.1)
        except tontine.Empty:
            print("not reported as dead")
        """
    assert run(tmp_path / "ends.py", program) == "1\nnot reported as dead\n"
