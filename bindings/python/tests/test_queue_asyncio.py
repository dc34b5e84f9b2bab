"""``AsyncQueue``: a queue in tasks of asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from tontine import AsyncQueue, OwnerDied, Queue, SenderDied


def start(context: BaseContext, target: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


def put(queue: Queue[Any], *objects: Any) -> None:
    for one in objects:
        queue.put(one)


def die(queue: Queue[Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def get(queue: Queue[Any], results: Queue[Any], count: int) -> None:
    for _ in range(count):
        results.put(queue.get())
    os.kill(os.getpid(), signal.SIGKILL)


def test_async_for_ends_with_the_last_producer(context: BaseContext) -> None:
    async def main() -> list[int]:
        with Queue[int]() as queue:
            processes = [start(context, put, queue, *range(100)) for _ in range(2)]
            for process in processes:
                queue.watch(process)
            return [number async for number in AsyncQueue(queue)]

    threads = threading.active_count()
    assert sorted(asyncio.run(main())) == sorted([*range(100)] * 2)
    assert threading.active_count() == threads


def test_awaited_get_notices_death_before_first_put(context: BaseContext) -> None:
    async def main() -> None:
        with Queue[int]() as queue:
            process = start(context, die, queue)
            queue.watch(process)
            with pytest.raises(SenderDied) as died:
                await asyncio.wait_for(AsyncQueue(queue).get(), 30)
            assert died.value.pid == process.pid

    asyncio.run(main())


def test_cancelled_get_loses_nothing() -> None:
    async def main() -> None:
        with Queue[int]() as queue:
            waiting = AsyncQueue(queue)
            received: list[int] = []
            for number in range(200):
                task = asyncio.ensure_future(waiting.get())
                await asyncio.sleep(0)
                queue.put(number)
                if number % 2:
                    await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                try:
                    received.append(await task)
                except asyncio.CancelledError:
                    pass
                while len(received) <= number:
                    received.append(await waiting.get())
            assert received == list(range(200))

    asyncio.run(main())


def test_awaited_put_waits_for_space_and_for_acknowledgements(context: BaseContext) -> None:
    async def main() -> None:
        with Queue[Any](2) as tasks, Queue[Any]() as results:
            waiting = AsyncQueue(tasks)
            await waiting.put(0)
            await waiting.put(bytes(100_000))
            task = asyncio.ensure_future(waiting.put("third"))
            await asyncio.sleep(0.02)
            assert not task.done()
            consumer = start(context, get, tasks, results, 3)
            await asyncio.wait_for(task, 30)
            received = AsyncQueue(results)
            assert [await received.get() for _ in range(3)] == [0, bytes(100_000), "third"]
            with pytest.raises(OwnerDied):
                for number in range(3):
                    await asyncio.wait_for(waiting.put(number), 30)
            consumer.join()

    asyncio.run(main())


def test_second_waiting_task_is_refused() -> None:
    async def main() -> None:
        with Queue[int]() as queue:
            waiting = AsyncQueue(queue)
            task = asyncio.ensure_future(waiting.get())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task waits"):
                await waiting.get()
            queue.put(1)
            assert await task == 1

    asyncio.run(main())
