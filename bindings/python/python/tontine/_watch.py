"""Processes whose end ends the wait for objects: ``Watches``."""

from __future__ import annotations

import errno
import math
import os
import select
from typing import TYPE_CHECKING

from ._errors import SenderDied

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


#: Maximum number of seconds of one wait, as for the waits of ``Mailbox``.
_LONGEST_WAIT = 0.2


class _Watch:
    """One process, by a pidfd, which is readable once the process has ended."""

    #: The pidfd; -1 if the process had ended before, or the watch has.
    descriptor = -1

    def __init__(self, process: BaseProcess | int) -> None:
        self._process = None if isinstance(process, int) else process
        pid = process if isinstance(process, int) else process.pid
        if pid is None:
            raise ValueError("expected a process that was started; call start before watch")
        self.pid = pid
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            pass  # It has ended, and was waited for.

    def exit_code(self) -> int | None:
        """Returns the exit code of the process, which has ended; None if it is not known."""
        if self._process is not None:
            try:
                # The server of the start method "forkserver" may be about to tell the exit code.
                self._process.join()
                return self._process.exitcode
            except (AssertionError, ValueError):
                # Not a child of this process, or the program has closed the object.
                return None
        try:
            # The program waits for its child itself.
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            ended = os.waitid(os.P_PIDFD, self.descriptor, flags)
        except OSError:
            return None
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


class Watches:
    """The processes that one process watches for a queue."""

    def __init__(self) -> None:
        self._live: dict[int, _Watch] = {}
        self._ended: list[_Watch] = []
        #: Processes whose death the mailbox has reported.
        self._reported: set[int] = set()

    def add(self, process: BaseProcess | int) -> None:
        watch = _Watch(process)
        if watch.descriptor < 0:
            self._ended.append(watch)
        else:
            self._live[watch.descriptor] = watch

    def has_live(self) -> bool:
        """Returns whether a watched process may put more, or its end was not reported."""
        return bool(self._live or self._ended)

    def descriptors(self) -> list[int]:
        """Returns the pidfds of the processes whose end was not noticed."""
        return list(self._live)

    def note_death(self, pid: int | None) -> None:
        """Notes a death that the mailbox has reported."""
        if pid is not None:
            self._reported.add(pid)

    def wait(self, descriptor: int, seconds: float | None) -> bool:
        """Waits until the descriptor is readable, or a process has ended.

        Returns whether the descriptor was readable. If it was not, everything is received that the
        processes had put which have ended by then.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        for live in self._live:
            poll.register(live, select.POLLIN)
        # Another thread may receive what would end this wait, so the caller looks again.
        longest = 0.0 if self._ended else _LONGEST_WAIT
        seconds = longest if seconds is None else min(seconds, longest)
        ready = poll.poll(math.ceil(seconds * 1000))
        if any(found == descriptor for found, _ in ready):
            return True
        self._ended += [self._live.pop(found) for found, _ in ready]
        return False

    def next_death(self) -> SenderDied | None:
        """Returns the exception for the next process that has not ended as usual."""
        while self._ended:
            ended = self._ended.pop(0)
            code = ended.exit_code()
            ended.close()
            if code and ended.pid not in self._reported:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                text = f"process {ended.pid} ended with {how}; all that it had put was returned"
                death = SenderDied(errno.EOWNERDEAD, text)
                death.pid = ended.pid
                return death
        return None
