"""Waits: signals, the interpreter's lock, and asyncio."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import pytest
from tontine import Closed, Mailbox, OwnerDied, Sender, SenderDied, TimedOut
from waiting import until, until_asleep

WAITS = {
    "recv": "Mailbox(address).recv()",
    "for": "next(iter(Mailbox(address)))",
    "recv_view": "Mailbox(address).recv_view()",
    "send": "mailbox = Mailbox(address); sender = Sender(address, cap=4096)\n"
    "while True: sender.send(bytes(512))",
    "wait_acked": "mailbox = Mailbox(address); sender = Sender(address); sender.send(b'x')\n"
    "sender.wait_acked()",
    "connect": "Sender(address, timeout=None)",
    "Queue.get": "Queue().get()",
    "Queue.get of a watched process": "queue = Queue(); queue.watch(os.getppid()); queue.get()",
    "Queue.put": "queue = Queue(max_bytes=8192); queue.bind()\nwhile True: queue.put(bytes(512))",
    "Queue.put without a consumer": "queue = Queue()\nwhile True: queue.put(bytes(512))",
    "Queue.put at an address": "Queue(address=address).put(1)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_each_wait(address: str, wait: str) -> None:
    program = (
        "from tontine import *\nimport os, sys, threading\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from waiting import until_asleep\n"
        f"address = {address!r}\n"
        "def report():\n"
        "    until_asleep(os.getpid())\n"
        "    print('waits', flush=True)\n"
        "try:\n"
        "    threading.Thread(target=report, daemon=True).start()\n"
        f"    {WAITS[wait].replace(chr(10), chr(10) + '    ')}\n"
        "except KeyboardInterrupt:\n    sys.exit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(40) == 7
    process.stdout.close()


@pytest.fixture
def handled() -> object:
    """Counts SIGUSR1 in a handler."""
    numbers: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    before = signal.signal(signal.SIGUSR1, handle)
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def test_wait_continues_after_signal_handler(address: str, handled: list[int]) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        main, native = threading.main_thread().ident, threading.main_thread().native_id
        assert main is not None

        def disturb() -> None:
            for number in range(5):
                until_asleep(native)
                signal.pthread_kill(main, signal.SIGUSR1)
                # Signals that are pending at the same time are one.
                until(lambda: len(handled) > number, "the handler has run")
            sender.send(b"after five signals")

        thread = threading.Thread(target=disturb)
        thread.start()
        assert mailbox.recv() == b"after five signals"
        thread.join()
        assert handled == [signal.SIGUSR1] * 5
        # A signal does not prolong a timeout (PEP 475): otherwise these would do so without end.
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(0.02):
                signal.pthread_kill(main, signal.SIGUSR1)

        thread = threading.Thread(target=repeat)
        thread.start()
        start = time.monotonic()
        with pytest.raises(TimedOut):
            mailbox.recv(0.2)
        assert time.monotonic() - start >= 0.2
        ended.set()
        thread.join()


def test_handler_may_use_the_end_that_waits(address: str) -> None:
    received: list[bytes] = []
    with Mailbox(address) as mailbox, Sender(address) as sender:

        def handle(_number: int, _frame: FrameType | None) -> None:
            sender.send(b"from the handler")
            received.append(mailbox.recv(10))
            sender.send(b"for the wait")

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            received.append(mailbox.recv(10))
        finally:
            signal.signal(signal.SIGALRM, before)
    assert received == [b"from the handler", b"for the wait"]


@pytest.mark.parametrize("wait", ["recv", "send"])
def test_other_threads_run_during_wait(address: str, wait: str) -> None:
    mailbox = Mailbox(address)
    with Sender(address, cap=4096) as sender:

        def fill() -> None:
            # The mailbox may be closed before it has accepted the lane.
            with pytest.raises((Closed, OwnerDied)):
                while True:
                    sender.send(bytes(512), timeout=40)

        def receive() -> None:
            with pytest.raises(ValueError, match="mailbox is closed"):
                mailbox.recv(40)

        thread = threading.Thread(target=fill if wait == "send" else receive)
        thread.start()
        until_asleep(thread.native_id)
        turns = 0
        while turns < 1000:
            turns += 1
        # If it kept the interpreter's lock, it would have ended by its timeout.
        assert thread.is_alive()
        mailbox.close()
        thread.join()


def test_async_for_yields_messages(address: str) -> None:
    async def receive(mailbox: Mailbox) -> list[bytes]:
        received = []
        async for message in mailbox:
            received.append(message)
            if message == b"99":
                break
        return received

    async def send(sender: Sender) -> None:
        for number in range(100):
            await sender.send_async(b"%d" % number)
            if number % 10 == 0:
                await asyncio.sleep(0.001)

    async def main() -> list[bytes]:
        with Mailbox(address) as mailbox, Sender(address) as sender:
            received, _ = await asyncio.gather(receive(mailbox), send(sender))
            return received

    assert asyncio.run(main()) == [b"%d" % number for number in range(100)]


def test_awaited_send_waits_for_space(address: str) -> None:
    async def main() -> int:
        with Mailbox(address) as mailbox, Sender(address, cap=4096) as sender:
            sending = asyncio.ensure_future(send_many(sender))
            received = 0
            while received < 200:
                assert len(await mailbox.recv_async()) == 512
                received += 1
            await sending
            return received

    async def send_many(sender: Sender) -> None:
        for _ in range(200):
            await sender.send_async(bytes(512))

    assert asyncio.run(main()) == 200


def test_async_wait_can_be_cancelled(address: str) -> None:
    async def main() -> bytes:
        with Mailbox(address) as mailbox, Sender(address) as sender:
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(mailbox.recv_async(), 0.02)
            waiting = asyncio.ensure_future(mailbox.recv_async())
            await asyncio.sleep(0.01)
            with pytest.raises(RuntimeError, match="another task waits"):
                await mailbox.recv_async()
            sender.send(b"at last")
            return await waiting

    assert asyncio.run(main()) == b"at last"


def test_endless_stream_leaves_turns_to_other_tasks(address: str) -> None:
    async def main() -> int:
        with Mailbox(address) as mailbox, Sender(address) as sender:
            ended = asyncio.ensure_future(asyncio.sleep(0.05))
            received = 0
            sender.send(b"first")
            async for message in mailbox:
                sender.send(message)
                received += 1
                if ended.done():
                    return received
        return 0

    assert asyncio.run(asyncio.wait_for(main(), 30)) > 0


def test_async_send_raises_death_of_receiver(address: str) -> None:
    async def main() -> None:
        mailbox, sender = Mailbox(address), Sender(address, cap=4096)
        await sender.send_async(b"accepted")
        assert await mailbox.recv_async() == b"accepted"
        sending = asyncio.ensure_future(fill(sender))
        await asyncio.sleep(0.05)
        mailbox.close()
        with pytest.raises(Closed):
            await sending

    async def fill(sender: Sender) -> None:
        while True:
            await sender.send_async(bytes(512))

    asyncio.run(main())


def test_async_for_raises_death_of_sender(address: str) -> None:
    context = multiprocessing.get_context("fork")

    async def main() -> int | None:
        with Mailbox(address, report_deaths=True) as mailbox:
            process = context.Process(target=send_then_die, args=(address,))
            process.start()
            try:
                async for message in mailbox:
                    assert message == b"last words"
            except SenderDied as death:
                assert death.pid == process.pid
                return death.pid
            finally:
                process.join()
        return None

    for _ in range(20):
        assert asyncio.run(asyncio.wait_for(main(), 30)) is not None


def send_then_die(address: str) -> None:
    sender = Sender(address)
    sender.send(b"last words")
    os.kill(os.getpid(), signal.SIGKILL)


def test_close_ends_async_wait(address: str) -> None:
    async def main() -> None:
        mailbox = Mailbox(address)
        waiting = asyncio.ensure_future(mailbox.recv_async())
        await asyncio.sleep(0.02)
        mailbox.close()
        with pytest.raises(ValueError, match="mailbox is closed"):
            await asyncio.wait_for(waiting, 10)

    asyncio.run(main())
