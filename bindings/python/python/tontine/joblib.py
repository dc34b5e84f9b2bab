"""Parallel loops of joblib in worker processes of Tontine.

::

    import joblib, tontine.joblib

    tontine.joblib.register()
    with joblib.parallel_config(backend="tontine"):
        joblib.Parallel(n_jobs=4)(joblib.delayed(abs)(number) for number in range(10))
"""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pickle import PicklingError
from typing import Any

from joblib import cpu_count, register_parallel_backend
from joblib.externals.loky.cloudpickle_wrapper import dumps, loads
from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from ._executor import Executor

__all__ = ["TontineBackend", "register"]


def register(name: str = "tontine", make_default: bool = False) -> None:
    """Makes the backend available to ``joblib.Parallel`` under a name.

    Args:
        name: The name, for ``Parallel(backend=name)`` and ``parallel_config(backend=name)``.
        make_default: If true, ``Parallel`` uses the backend unless it is told another.
    """
    register_parallel_backend(name, TontineBackend, make_default=make_default)


class TontineBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """A backend of joblib that calls functions in a ``tontine.Executor``.

    Each call of ``Parallel`` starts workers, and ends them when it returns. In a ``with`` statement
    the workers stay for all its calls, until one fails. Functions, arguments and results are
    pickled by cloudpickle: functions of the main program and lambdas need no module. Arrays are
    copied, not mapped from files: ``max_nbytes``, ``mmap_mode`` and ``temp_folder`` have no effect.

    Args:
        context: The start method's context, from ``multiprocessing.get_context``.
        initializer: A function that each worker calls first.
        initargs: Its arguments.
    """

    supports_retrieve_callback = True

    _workers: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Returns the number of workers: 1, with a warning, where no process can be started."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs == 1:
            return 1
        if multiprocessing.current_process().daemon:
            return _only_one("started in a daemonic process")
        # In a worker, the main thread is not of the class by which joblib recognises it.
        if threading.current_thread() is not threading.main_thread() and self.nesting_level != 0:
            # Each thread would start its own workers.
            return _only_one("nested below threads")
        return n_jobs if n_jobs > 0 else max(cpu_count() + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        *,
        context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **_ignored: Any,
    ) -> int:
        """Starts the workers, and returns their number."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        settings = {"context": context, "initializer": initializer, "initargs": initargs}
        settings.update(self.backend_kwargs)
        self._workers = Executor(
            n_jobs,
            mp_context=settings["context"],
            initializer=settings["initializer"],
            initargs=settings["initargs"],
        )
        self.parallel = parallel
        return n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[bytes]], Any] | None = None
    ) -> Future[bytes]:
        """Sends a batch of calls to the workers, and returns the future of its result."""
        assert self._workers is not None
        future: Future[bytes]
        try:
            pickled = dumps(func)
        except Exception as error:
            # joblib also calls this where it would lose an exception: in the callback of a future.
            future = Future()
            refused = PicklingError(f"Could not pickle the task to send to the workers: {error!r}")
            refused.__cause__ = error
            future.set_exception(refused)
        else:
            future = self._workers.submit(_call, pickled)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    #: The name of ``submit`` in joblib 1.4 and earlier.
    apply_async = submit

    def retrieve_result_callback(self, out: Future[bytes]) -> Any:
        """Returns the results of a batch, or raises the exception of one of its calls."""
        return loads(out.result())

    def terminate(self) -> None:
        """Ends the workers."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Kills the workers in the middle of their calls, and starts others if they are needed."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.kill_workers()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel, **self.parallel._backend_kwargs)


def _only_one(place: str) -> int:
    text = f"Tontine-backed parallel loops cannot be {place}, setting n_jobs=1"
    warnings.warn(text, stacklevel=4)
    return 1


def _call(pickled: bytes) -> bytes:
    """Makes the calls of a batch in a worker."""
    result: bytes = dumps(loads(pickled)())
    return result
