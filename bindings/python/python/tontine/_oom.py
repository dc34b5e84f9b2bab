"""``OomCounter``: whether the kernel killed a process because its memory cgroup was full."""

from __future__ import annotations

from pathlib import Path


class OomCounter:
    """Number of processes of this process's memory cgroup that the kernel killed.

    Sources: "Memory Interface Files" in the kernel's cgroup-v2.rst (``memory.events``), and
    cgroup-v1/memory.rst (``memory.oom_control``).
    """

    def __init__(self) -> None:
        self._file = _counter_file()
        self._before = self._count()

    def _count(self) -> int | None:
        if self._file is None:
            return None
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return None
        counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
        return int(counts[0]) if counts else None

    def has_risen(self) -> bool:
        """Returns whether the number has risen since the last call."""
        before, self._before = self._before, self._count()
        return before is not None and self._before is not None and self._before > before


def _counter_file() -> Path | None:
    """Returns the file that counts the kills of this process's cgroup."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            file = Path("/sys/fs/cgroup", group.lstrip("/"), "memory.events")
        elif "memory" in controllers.split(","):
            file = Path("/sys/fs/cgroup/memory", group.lstrip("/"), "memory.oom_control")
        else:
            continue
        if file.exists():
            return file
    return None
