"""``Executor``, whose workers are killed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    as_completed,
    wait,
)
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest
from tontine import Executor, WorkerDied
from waiting import until


def square(number: int) -> int:
    return number * number


def own_pid(_: object = None) -> int:
    return os.getpid()


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_run(folder: str, number: int) -> int:
    """Leaves one byte in the file of this number, so that its size is the number of runs."""
    with open(Path(folder, str(number)), "ab") as file:
        file.write(b".")
    return number


def kill_self(number: int) -> None:
    os.kill(os.getpid(), number)


def die_until(folder: str, deaths: int) -> int:
    """Kills its worker until it has run often enough, and returns the number of runs."""
    count_run(folder, 0)
    runs = Path(folder, "0").stat().st_size
    if runs <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return runs


def sleep_until(path: str) -> str:
    """Says in a file that it runs, and waits until another file exists."""
    Path(path + ".runs").touch()
    until(lambda: Path(path).exists(), "the test continues", 60)
    return path


def test_future_has_result_or_exception(context: BaseContext) -> None:
    with Executor(2, context) as executor:
        assert executor.submit(pow, 2, exp=5).result() == 32
        with pytest.raises(ZeroDivisionError) as raised:
            executor.submit(divmod, 1, 0).result()
        assert raised.value.__cause__ is not None
        assert "ZeroDivisionError" in str(raised.value.__cause__)
        assert set(executor.pids) >= {executor.submit(own_pid).result() for _ in range(20)}
        futures = [executor.submit(square, number) for number in range(100)]
        assert {future.result() for future in as_completed(futures)} == {
            number**2 for number in range(100)
        }
        assert wait(futures).not_done == set()


def test_map_has_order_of_arguments() -> None:
    with Executor(2) as executor:
        assert list(executor.map(pow, [2, 3, 4], [5, 2, 1, 0])) == [32, 9, 4]
        assert list(executor.map(square, range(1000), chunksize=7)) == [n * n for n in range(1000)]
        assert list(executor.map(square, [])) == []
        results = executor.map(divmod, [1, 1, 1], [1, 0, 1])
        assert next(results) == (1, 0)
        with pytest.raises(ZeroDivisionError):
            next(results)
        for wrong in ({"chunksize": 0}, {"buffersize": 0}):
            with pytest.raises(ValueError, match="to be at least 1"):
                executor.map(square, [1], **wrong)


def test_buffered_map_takes_items_as_results_are_taken() -> None:
    taken: list[int] = []

    def source() -> Any:
        for number in range(20):
            taken.append(number)
            yield number

    with Executor(2) as executor:
        results = executor.map(square, source(), buffersize=3)
        assert taken == [0, 1, 2]
        assert next(results) == 0
        assert taken == [0, 1, 2, 3]
        assert list(results) == [n * n for n in range(1, 20)]


def test_map_times_out(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with Executor(1) as executor:
        results = executor.map(sleep_until, [gate], timeout=0.05)
        # Before Python 3.11 this is not the built-in `TimeoutError`.
        with pytest.raises(concurrent.futures.TimeoutError):
            next(results)
        Path(gate).touch()


def test_dead_worker_takes_only_its_task_along(context: BaseContext, tmp_path: Path) -> None:
    with Executor(2, context) as executor:
        dying = executor.submit(die_until, str(tmp_path), 2)
        others = [executor.submit(count_run, str(tmp_path), n) for n in range(1, 300)]
        assert dying.result() == 3
        assert [other.result() for other in others] == list(range(1, 300))
    assert {Path(tmp_path, str(n)).stat().st_size for n in range(1, 300)} == {1}


def test_worker_died_names_task_and_cause() -> None:
    with Executor(2, retries=1) as executor:
        with pytest.raises(WorkerDied, match="2 workers died.*exit code -9.*die with 'poison'") as e:
            executor.submit(die, "poison").result()
        assert (e.value.function, e.value.argument, e.value.exitcode) == (die, "poison", -9)
        assert (e.value.signal, e.value.oom) == (signal.SIGKILL, None)
        with pytest.raises(WorkerDied, match="exit code 7") as exited:
            executor.submit(os._exit, 7).result()
        assert (exited.value.exitcode, exited.value.signal) == (7, None)
        with pytest.raises(WorkerDied) as mapped:
            list(executor.map(die, [1, 2]))
        assert mapped.value.argument in [1, 2]
        # A real-time signal, for which Python has no name.
        with pytest.raises(WorkerDied, match="exit code -40") as unnamed:
            executor.submit(kill_self, signal.SIGRTMIN + 6).result()
        assert unnamed.value.signal == signal.SIGRTMIN + 6
        with pytest.raises(WorkerDied, match=r"die with \(\) and {'_': 'x'}$") as keyword:
            executor.submit(die, _="x").result()
        assert keyword.value.argument == ()
        assert executor.submit(square, 3).result() == 9
    with Executor(1, retries=0) as executor, pytest.raises(WorkerDied, match="^1 worker died"):
        executor.submit(die, 1).result()


def test_random_kills_repeat_only_running_tasks(tmp_path: Path) -> None:
    tasks, kills = 3000, 25
    random.seed(7)
    with Executor(4, retries=kills) as executor:
        folder = [str(tmp_path)] * tasks
        results = executor.map(count_run, folder, range(tasks))
        done = 0
        for number in range(kills):
            while done < (number + 1) * tasks // (kills + 1):
                assert next(results) == done
                done += 1
            pids = executor.pids
            if pids:
                try:
                    os.kill(random.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        assert list(results) == list(range(done, tasks))
    runs = [Path(tmp_path, str(number)).stat().st_size for number in range(tasks)]
    # The file may be written although the worker died before it returned; so each kill repeats at
    # most one task.
    assert min(runs) == 1 and sum(runs) <= tasks + kills


def test_task_beyond_timeout_is_ended_alone(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with Executor(2, timeout=2) as executor:
        late = executor.submit(sleep_until, gate)
        others = [executor.submit(square, number) for number in range(50)]
        with pytest.raises(TimeoutError, match="longer than 2 s"):
            late.result()
        assert [other.result() for other in others] == [n * n for n in range(50)]


def test_task_of_stopped_worker_moves_on() -> None:
    with Executor(1, timeout=2) as executor:
        stopped = executor.submit(own_pid).result()
        os.kill(stopped, signal.SIGSTOP)
        # It had not begun there, so it is not too late.
        assert executor.submit(square, 2).result() == 4
        assert stopped not in executor.pids


def test_tasks_do_not_wait_behind_long_one(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Executor(2) as executor:
        # So short tasks have been sent in advance.
        assert list(executor.map(square, range(2000))) == [n * n for n in range(2000)]
        mixed = [executor.submit(square, n) for n in range(200)]
        long = executor.submit(sleep_until, str(gate))
        mixed += [executor.submit(square, n) for n in range(200)]
        assert [future.result() for future in mixed] == [n * n for n in range(200)] * 2
        gate.touch()
        assert long.result() == str(gate)


def test_pending_future_is_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Executor(1) as executor:
        running = executor.submit(sleep_until, str(gate))
        until(Path(f"{gate}.runs").exists, "the task runs")
        pending = executor.submit(square, 2)
        assert not running.cancel() and pending.cancel()
        gate.touch()
        assert running.result() == str(gate)
        with pytest.raises(CancelledError):
            pending.result()


def test_shutdown_finishes_or_cancels(tmp_path: Path) -> None:
    executor = Executor(2)
    futures = [executor.submit(square, number) for number in range(200)]
    pids = executor.pids
    executor.shutdown()
    assert [future.result() for future in futures] == [n * n for n in range(200)]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(RuntimeError, match="accepts no more tasks"):
        executor.submit(square, 1)
    gate = tmp_path / "gate"
    executor = Executor(1)
    running = executor.submit(sleep_until, str(gate))
    until(Path(f"{gate}.runs").exists, "the task runs")
    pending = [executor.submit(square, number) for number in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    gate.touch()
    executor.shutdown()
    assert running.result() == str(gate) and all(future.cancelled() for future in pending)


def test_killed_workers_cancel_what_is_unfinished(tmp_path: Path) -> None:
    executor = Executor(1)
    futures = [executor.submit(sleep_until, str(tmp_path / "gate")) for _ in range(2)]
    executor.kill_workers()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result()


def test_worker_is_replaced_after_its_tasks() -> None:
    with Executor(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(own_pid).result() for _ in range(9)]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]
        counts = list(executor.map(own_pid, range(50)))
        assert max(counts.count(pid) for pid in set(counts)) <= 3


def test_failing_initializer_breaks_pending_tasks_only(tmp_path: Path) -> None:
    marker = tmp_path / "works"
    with Executor(1, initializer=exit_unless, initargs=(str(marker),)) as executor:
        with pytest.raises(BrokenExecutor, match="before they are ready, with exit code 4"):
            executor.submit(square, 1).result()
        marker.touch()
        assert executor.submit(square, 2).result() == 4
    with pytest.raises(TypeError, match="initializer that can be called"):
        Executor(1, initializer=3)  # type: ignore[arg-type]


def test_initializer_that_cannot_be_pickled_is_named(context: BaseContext) -> None:
    if context.get_start_method() == "fork":
        return
    with Executor(1, context, lambda: None) as executor:
        for _ in range(2):
            with pytest.raises(BrokenExecutor, match="cannot be started.*lambda"):
                executor.submit(square, 1).result()


def exit_unless(marker: str) -> None:
    if not os.path.exists(marker):
        os._exit(4)


def test_cost_of_calls_does_not_grow_with_their_number() -> None:
    def seconds(count: int) -> float:
        before = time.process_time()
        # Each call has a packet of its own, because its function is another than the last one's.
        futures = [executor.submit((abs, operator.neg)[n % 2], n) for n in range(count)]
        wait(futures)
        return time.process_time() - before

    with Executor(2) as executor:
        seconds(1000)
        assert seconds(16_000) < 50 * seconds(1000)


def test_threads_share_executor() -> None:
    wrong: list[Any] = []

    def use(start: int) -> None:
        for _ in range(20):
            numbers = range(start, start + 10)
            if list(executor.map(square, numbers)) != [n * n for n in numbers]:
                wrong.append(start)

    with Executor(2) as executor:
        threads = [threading.Thread(target=use, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_asyncio_awaits_calls() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with Executor(2) as executor:
            calls = [loop.run_in_executor(executor, square, n) for n in range(50)]
            return await asyncio.gather(*calls)

    assert asyncio.run(main()) == [n * n for n in range(50)]


def test_task_may_start_processes() -> None:
    with Executor(1) as executor:
        assert executor.submit(run_nested).result() == [0, 1, 4]


def run_nested() -> list[int]:
    with Executor(1) as executor:
        return list(executor.map(square, range(3)))


def test_exit_of_task_reaches_caller_once(tmp_path: Path) -> None:
    with Executor(1) as executor, pytest.raises(SystemExit, match="as requested"):
        executor.submit(exit_with, str(tmp_path), "as requested").result()
    assert Path(tmp_path, "0").stat().st_size == 1


def exit_with(folder: str, text: str) -> None:
    count_run(folder, 0)
    sys.exit(text)


def test_unused_executor_ends() -> None:
    executor = Executor(1)
    future, pids = executor.submit(square, 3), executor.pids
    del executor
    gc.collect()
    assert future.result() == 9
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the worker ends")


def test_forked_child_is_refused() -> None:
    with Executor(1) as executor:
        child = os.fork()
        if child == 0:
            try:
                executor.submit(square, 1)
            except RuntimeError as error:
                os._exit(0 if "belong to process" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert executor.submit(square, 2).result() == 4


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("moment", ["idle", "busy"])
def test_workers_end_when_their_executor_is_killed(
    tmp_path: Path, method: str, moment: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, time, tontine\n"
        "def spin(_):\n"
        "    os.write(1, b'works\\n')\n"
        "    while True: pass\n"
        "if __name__ == '__main__':\n"
        f"    executor = tontine.Executor(2, multiprocessing.get_context({method!r}))\n"
        "    list(executor.map(abs, range(4)))\n"
        "    os.write(1, (' '.join(map(str, executor.pids)) + '\\n').encode())\n"
        f"    if {moment == 'busy'}: list(executor.map(spin, range(2)))\n"
        "    time.sleep(100)\n"
    )
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        if moment == "busy":
            assert [process.stdout.readline() for _ in range(2)] == ["works\n"] * 2
        process.kill()
    until(lambda: not any(is_alive(int(pid)) for pid in pids), "the workers to end")


def is_alive(pid: int) -> bool:
    """Returns whether a process runs: a container without init keeps orphans as zombies."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("handling", ["ignored", "reaped"])
def test_death_is_noticed_without_waitpid(tmp_path: Path, handling: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, tontine\n"
        "sys.path.insert(0, os.path.dirname(sys.argv[1]))\n"
        "def reap(*_):\n"
        "    try:\n"
        "        while os.waitpid(-1, os.WNOHANG)[0]: pass\n"
        "    except ChildProcessError: pass\n"
        "def die_once(n):\n"
        "    if n == 3 and not os.path.exists(sys.argv[1]):\n"
        "        open(sys.argv[1], 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return n\n"
        "if __name__ == '__main__':\n"
        f"    signal.signal(signal.SIGCHLD, {'signal.SIG_IGN' if handling == 'ignored' else 'reap'})\n"
        "    with tontine.Executor(2) as executor:\n"
        "        print(list(executor.map(die_once, range(6))))\n"
        "    used = os.times()\n"
        "    print(used.user + used.system < 5)\n"
    )
    command = [sys.executable, str(program), str(tmp_path / "died")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[0, 1, 2, 3, 4, 5]\nTrue\n", ended.stderr


def test_interrupt_ends_programs_of_tasks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, subprocess, tontine\n"
        "def run(_):\n"
        "    child = subprocess.Popen(['sleep', '100'])\n"
        "    os.write(1, f'{child.pid}\\n'.encode())\n"
        "    child.wait()\n"
        "if __name__ == '__main__':\n"
        "    with tontine.Executor(2) as executor:\n"
        "        list(executor.map(run, range(2)))\n"
    )
    command = [sys.executable, str(program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        os.killpg(process.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    until(lambda: not any(is_alive(pid) for pid in pids), "the programs to end")


def test_cloudpickle_passes_functions_without_names() -> None:
    pytest.importorskip("cloudpickle")
    with Executor(1, cloudpickle=True) as executor:
        assert list(executor.map(lambda number: number + 1, [1, 2])) == [2, 3]


MEMORY = Path("/sys/fs/cgroup/memory")


def test_worker_that_exceeds_memory_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, tontine\n"
        "def fill(size): return len(bytearray(size))\n"
        "if __name__ == '__main__':\n"
        "    with tontine.Executor(2, retries=0) as executor:\n"
        "        assert list(executor.map(fill, range(4))) == [0, 1, 2, 3]\n"
        "        try: executor.submit(fill, 1 << 30).result()\n"
        "        except tontine.WorkerDied as error: print(error.oom, error)\n"
        "        print(executor.submit(fill, 5).result())\n"
    )
    name = f"tontine-test-{os.getpid()}"
    if os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK):
        group = Path("/sys/fs/cgroup", name)
        limits = {"memory.max": "200M", "memory.swap.max": "0"}
    elif os.access(MEMORY / "cgroup.procs", os.W_OK):
        group = MEMORY / name
        limits = {"memory.limit_in_bytes": "200M", "memory.memsw.limit_in_bytes": "200M"}
    else:
        pytest.skip("skipped: no memory cgroup can be made here")
    group.mkdir()
    try:
        for file, limit in limits.items():
            if group.joinpath(file).exists():
                group.joinpath(file).write_text(limit)
        if not any(group.joinpath(file).exists() for file in limits):
            pytest.skip("skipped: the memory controller is not enabled")
        join = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} {program}"
        ended = subprocess.run(["sh", "-c", join], capture_output=True, text=True, timeout=60)
        lines = ended.stdout.splitlines()
        assert lines[0].startswith("True 1 worker died of this task"), ended
        assert "exit code -9 (out of memory): fill with 1073741824" in lines[0]
        assert lines[1] == "5"
    finally:
        until(lambda: not group.joinpath("cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


def test_waits_take_no_processor_time() -> None:
    with Executor(2) as executor:
        list(executor.map(square, range(100)))
        time.sleep(0.2)
        before = sum(os.times()[:2])
        time.sleep(1)
        assert sum(os.times()[:2]) - before < 0.1
