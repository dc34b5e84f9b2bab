"""``Mailbox`` and ``Sender`` in one process."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tontine import (
    AddressInUse,
    Closed,
    Error,
    Mailbox,
    NoMailbox,
    OwnerDied,
    Queue,
    Sender,
    TimedOut,
    TooLarge,
    WouldBlock,
)
from waiting import until, until_asleep


def test_messages_arrive_in_order(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        for number in range(100):
            sender.send(b"%d" % number)
        assert [int(mailbox.recv()) for _ in range(100)] == list(range(100))
        assert mailbox.sender_count == 1
        assert sender.receiver_pid == os.getpid()
        assert repr(mailbox) == f'<tontine.Mailbox "{address}">'
        assert mailbox.address == sender.address == address


def test_iteration_yields_messages(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"a", b"b", b"c"])
        received = []
        for message in mailbox:
            received.append(message)
            if message == b"c":
                break
        assert received == [b"a", b"b", b"c"]


def test_batch_contains_what_is_there(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch(b"%d" % number for number in range(10))
        assert mailbox.recv_batch(4) == [b"0", b"1", b"2", b"3"]
        assert mailbox.recv_batch(timeout=1) == [b"%d" % number for number in range(4, 10)]
        assert mailbox.recv_batch(0) == []
        with pytest.raises(TimedOut):
            mailbox.recv_batch(timeout=0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 4096, 100_000, 3_000_000])
def test_message_of_any_length_is_unchanged(address: str, length: int) -> None:
    message = os.urandom(length)
    with Mailbox(address) as mailbox, Sender(address) as sender:
        thread = threading.Thread(target=sender.send, args=(message,))
        thread.start()
        assert mailbox.recv(10) == message
        thread.join()


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, dtype=np.uint16)]
)
def test_any_contiguous_buffer_is_a_message(address: str, make: Callable[[bytes], Any]) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send(make(b"12345678"))
        sender.try_send(make(b"abcdefgh"))
        assert mailbox.recv_batch() == [b"12345678", b"abcdefgh"]


@pytest.mark.parametrize("message", ["text", 5, None, [b"a"]])
def test_object_without_buffer_is_refused(address: str, message: Any) -> None:
    with Mailbox(address), Sender(address) as sender:
        with pytest.raises(TypeError):
            sender.send(message)


def test_noncontiguous_array_is_refused(address: str) -> None:
    with Mailbox(address), Sender(address) as sender:
        with pytest.raises((BufferError, ValueError)):
            sender.send(np.zeros((4, 4))[:, 1])


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_invalid_timeout_is_refused(address: str, timeout: float) -> None:
    queue: Queue[int] = Queue()
    watching: Queue[int] = Queue()
    watching.watch(os.getpid())
    with Mailbox(address) as mailbox, Sender(address) as sender, queue, watching:
        calls: list[Callable[[float], object]] = [
            mailbox.recv,
            mailbox.recv_view,
            lambda timeout: mailbox.recv_batch(timeout=timeout),
            lambda timeout: sender.send(b"", timeout),
            lambda timeout: sender.send_batch([b""], timeout),
            sender.wait_acked,
            lambda timeout: Sender(address, timeout=timeout),
            lambda timeout: queue.put(1, timeout=timeout),
            lambda timeout: queue.get(timeout=timeout),
            lambda timeout: watching.get(timeout=timeout),
            queue.connect,
        ]
        # Also if the call would not wait.
        for is_ready in (False, True):
            if is_ready:
                sender.send(b"ready")
                queue.put(0)
                watching.put(0)
            for call in calls:
                with pytest.raises(ValueError, match="at least 0 seconds"):
                    call(timeout)


@pytest.mark.parametrize("spin", [-1.0, 1.0, float("nan")])
def test_invalid_spin_time_is_refused(address: str, spin: float) -> None:
    with pytest.raises(ValueError, match="spin time"):
        Mailbox(address, spin=spin)


def test_empty_mailbox_blocks_or_times_out(address: str) -> None:
    with Mailbox(address) as mailbox:
        with pytest.raises(WouldBlock) as blocked:
            mailbox.try_recv()
        assert blocked.value.errno == errno.EAGAIN
        assert isinstance(blocked.value, BlockingIOError)
        start = time.monotonic()
        with pytest.raises(TimeoutError) as late:
            mailbox.recv(0.1)
        assert isinstance(late.value, Error)
        assert late.value.errno == errno.ETIMEDOUT
        assert time.monotonic() - start >= 0.1


def test_full_lane_blocks_or_times_out(address: str) -> None:
    with Mailbox(address), Sender(address, cap=4096) as sender:
        with pytest.raises(WouldBlock):
            for _ in range(100):
                sender.try_send(bytes(512))
        with pytest.raises(TimedOut):
            sender.send(bytes(512), timeout=0.05)
        with pytest.raises(TimedOut):
            sender.send_batch([bytes(512)] * 2, timeout=0)
        with pytest.raises(TooLarge) as large:
            sender.send(bytes(4096))
        assert large.value.errno == errno.EMSGSIZE
        assert 0 < sender.max_message_len < 4096


def test_blocked_send_continues_once_there_is_space(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address, cap=4096) as sender:

        def send() -> None:
            for number in range(100):
                sender.send(b"%d" % number * 200)

        thread = threading.Thread(target=send)
        thread.start()
        assert [mailbox.recv(10) for _ in range(100)] == [b"%d" % n * 200 for n in range(100)]
        thread.join()


def test_address_without_mailbox_is_reported(address: str) -> None:
    with pytest.raises(NoMailbox) as refused:
        Sender(address)
    assert isinstance(refused.value, ConnectionRefusedError)
    start = time.monotonic()
    with pytest.raises(NoMailbox):
        Sender(address, timeout=0.1)
    assert time.monotonic() - start >= 0.1


def test_sender_waits_for_mailbox(address: str) -> None:
    opened: list[Mailbox] = []
    thread = threading.Timer(0.1, lambda: opened.append(Mailbox(address)))
    thread.start()
    with Sender(address, timeout=10) as sender:
        sender.send(b"late")
    thread.join()
    assert opened[0].recv(10) == b"late"


def test_owned_address_names_its_owner(address: str) -> None:
    with Mailbox(address):
        with pytest.raises(AddressInUse, match=f"pid {os.getpid()}") as used:
            Mailbox(address)
        assert used.value.pid == os.getpid()
    with Mailbox(address):
        pass


@pytest.mark.parametrize("address", ["", "/nonexistent/folder/mailbox"])
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(Error) as invalid:
        Mailbox(address)
    assert invalid.value.errno in (errno.EINVAL, errno.ENOENT)


def test_path_objects_and_abstract_names_are_addresses(tmp_path: Path) -> None:
    not_utf8 = str(tmp_path) + "/\udcff"
    for address in (tmp_path / "mailbox", f"@tontine-test-{os.getpid()}", not_utf8):
        with Mailbox(address) as mailbox, Sender(address) as sender:
            assert mailbox.address == sender.address == os.fspath(address)
            sender.send(b"here")
            assert mailbox.recv() == b"here"


def test_closed_ends_refuse_calls(address: str) -> None:
    mailbox, sender = Mailbox(address), Sender(address)
    sender.send(b"last")
    assert mailbox.recv() == b"last"
    sender.send(b"unread")
    mailbox.close()
    mailbox.close()
    for call in (mailbox.recv, mailbox.fileno, mailbox.arm):
        with pytest.raises(ValueError, match="mailbox is closed"):
            call()
    with pytest.raises(Closed) as closed:
        sender.send(b"more")
    assert isinstance(closed.value, BrokenPipeError)
    assert closed.value.pid == os.getpid()
    assert sender.take_unread() == [b"unread"]
    sender.close()
    with pytest.raises(ValueError, match="sender is closed"):
        sender.send(b"more")


def test_close_ends_waits_of_other_threads(address: str) -> None:
    mailbox = Mailbox(address)
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            mailbox.recv()
        except ValueError as error:
            failures.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        until_asleep(thread.native_id)
    mailbox.close()
    for thread in threads:
        thread.join()
    assert len(failures) == 3


def test_acknowledged_message_is_not_unread(address: str) -> None:
    mailbox, sender = Mailbox(address), Sender(address)
    for message in (b"one", b"two", b"three"):
        sender.send(message)
    assert mailbox.recv() == b"one"
    assert mailbox.recv() == b"two"
    assert sender.unread_bytes > 0
    mailbox.ack()
    with pytest.raises(TimedOut):
        sender.wait_acked(0.05)
    assert mailbox.recv() == b"three"
    mailbox.ack()
    sender.wait_acked(10)
    assert sender.unread_bytes == 0
    with pytest.raises(WouldBlock):
        sender.take_unread()


def test_view_shows_message_without_copy(address: str) -> None:
    frame = np.arange(100_000, dtype=np.float64)
    with Mailbox(address) as mailbox, Sender(address) as sender:
        thread = threading.Thread(target=sender.send_batch, args=([frame, b"next"],))
        thread.start()
        with mailbox.recv_view(10) as view:
            assert view.readonly
            array = np.frombuffer(view, dtype=np.float64)
            assert not array.flags.owndata
            assert (array == frame).all()
            for call in (mailbox.recv, mailbox.try_recv, mailbox.recv_view, mailbox.close):
                with pytest.raises(BufferError, match="in use"):
                    call()
            del array
        with pytest.raises(ValueError):
            view[0]
        assert mailbox.recv(10) == b"next"
        thread.join()


def test_array_kept_beyond_its_message_is_reported(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"12345678", b"next"])
        with pytest.raises(BufferError, match="still in use"):
            with mailbox.recv_view() as view:
                kept = np.frombuffer(view, dtype=np.uint8)
        assert bytes(kept) == b"12345678"
        with pytest.raises(BufferError):
            mailbox.recv()
        del view, kept
        gc.collect()
        assert mailbox.recv() == b"next"


def test_exception_in_view_is_not_replaced(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"12345678", b"next"])
        with pytest.raises(ZeroDivisionError):
            with mailbox.recv_view() as view:
                _kept = np.frombuffer(view, dtype=np.uint8)
                raise ZeroDivisionError
        del view, _kept
        gc.collect()
        assert mailbox.recv() == b"next"


def test_exception_passes_view_and_mailbox(address: str) -> None:
    with pytest.raises(ZeroDivisionError):
        with Mailbox(address) as mailbox, Sender(address) as sender:
            sender.send(b"12345678")
            with mailbox.recv_view() as view:
                _kept = np.frombuffer(view, dtype=np.uint8)
                raise ZeroDivisionError


def test_view_without_exit_is_released_with_its_last_reference(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"first", b"second"])
        view = mailbox.recv_view().__enter__()
        with pytest.raises(BufferError):
            mailbox.recv()
        assert bytes(view) == b"first"
        del view
        gc.collect()
        assert mailbox.recv() == b"second"


def test_message_is_kept_if_memory_is_short(address: str) -> None:
    program = (
        "import mmap, resource, tontine\n"
        "long = mmap.mmap(-1, 100_000_000)\n"
        f"mailbox = tontine.Mailbox({address!r}, cap=1 << 29)\n"
        f"sender = tontine.Sender({address!r}, cap=1 << 29, first_chunk=1 << 29)\n"
        "sender.send(b'first')\n"
        "assert mailbox.recv() == b'first'\n"
        "sender.send(long)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, -1))\n"
        "for receive in (mailbox.recv, mailbox.try_recv, mailbox.recv_batch):\n"
        "    try:\n"
        "        receive()\n"
        "    except MemoryError:\n"
        "        continue\n"
        "    raise SystemExit('expected a MemoryError')\n"
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
        "assert len(mailbox.recv()) == 100_000_000\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_descriptor_limit_rises_unless_forbidden(address: str) -> None:
    program = (
        "import errno, os, pickle, resource\n"
        "from tontine import Error, Mailbox, Queue, Sender\n"
        f"address, other = {address!r}, {address + '-2'!r}\n"
        "mailbox = Mailbox(address)\n"
        "queue = Queue(address=other, raise_descriptor_limit=False)\n"
        "consumer = pickle.loads(pickle.dumps(queue))\n"
        "producer = Queue(address=address, raise_descriptor_limit=False)\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        # `dup` returns the lowest number that is free, so this limit leaves none.
        "free = os.dup(0)\n"
        "os.close(free)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))\n"
        "for open_end in (\n"
        "    lambda: Mailbox(other, raise_descriptor_limit=False),\n"
        "    lambda: Sender(address, raise_descriptor_limit=False),\n"
        "    consumer.bind,\n"
        "    producer.connect,\n"
        "):\n"
        "    try:\n"
        "        open_end()\n"
        "    except Error as error:\n"
        "        assert error.errno == errno.EMFILE, error\n"
        "        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (free, hard)\n"
        "        continue\n"
        "    raise SystemExit('expected an Error')\n"
        "sender = Sender(address)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > free\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_blocked_sends_of_other_threads_do_not_block_try_send(address: str) -> None:
    mailbox = Mailbox(address)
    with Sender(address, cap=4096) as sender:
        with pytest.raises(WouldBlock):
            while True:
                sender.try_send(bytes(512))

        def send() -> None:
            # The mailbox may be closed before it has accepted the lane.
            with pytest.raises((Closed, OwnerDied)):
                sender.send(bytes(512))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        # The others wait during all of these calls but the first ones.
        for _ in range(20):
            with pytest.raises(WouldBlock):
                sender.try_send(bytes(512))
            time.sleep(0.01)
        assert all(thread.is_alive() for thread in threads)
        mailbox.close()
        for thread in threads:
            thread.join()


def test_unused_view_is_released(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"first", b"", b"last"])
        assert len(mailbox.recv_view()) == 5
        gc.collect()
        with mailbox.recv_view() as view:
            assert bytes(view) == b""
        assert mailbox.recv() == b"last"


def test_ended_view_cannot_be_used_again(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send(b"once")
        message = mailbox.recv_view()
        with message:
            pass
        message.__exit__(None, None, None)
        with pytest.raises(RuntimeError, match="has ended"):
            memoryview(message)


def test_descriptor_is_readable_when_message_arrives(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        with pytest.raises(WouldBlock):
            mailbox.try_recv()
        while not mailbox.arm():
            with pytest.raises(WouldBlock):
                mailbox.try_recv()
        assert select.select([mailbox], [], [], 0)[0] == []
        sender.send(b"ring")
        assert select.select([mailbox], [], [], 10)[0] == [mailbox]
        assert mailbox.try_recv() == b"ring"


def test_sender_descriptor_reports_end_of_receiver(address: str) -> None:
    mailbox, sender = Mailbox(address), Sender(address)
    sender.send(b"hello")
    assert mailbox.recv() == b"hello"
    sender.service()
    mailbox.close()
    assert select.select([sender], [], [], 10)[0] == [sender]
    with pytest.raises(Closed):
        sender.service()


def test_many_threads_share_both_ends(address: str) -> None:
    per_thread, received = 500, []
    with Mailbox(address) as mailbox, Sender(address) as shared:

        def send(number: int) -> None:
            with Sender(address) as own:
                for count in range(per_thread):
                    (own if count % 2 else shared).send(b"%d %d" % (number, count))

        def receive() -> None:
            while (message := mailbox.recv(30)) != b"stop":
                received.append(message)

        receivers = [threading.Thread(target=receive) for _ in range(3)]
        senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in senders + receivers:
            thread.start()
        for thread in senders:
            thread.join()
        shared.wait_acked(30)
        until(lambda: len(received) == 4 * per_thread, "all messages")
        shared.send_batch([b"stop"] * len(receivers))
        for thread in receivers:
            thread.join()
    assert len(set(received)) == len(received) == 4 * per_thread


def test_requeued_message_is_received_again_or_stays_unread(address: str) -> None:
    with Mailbox(address) as mailbox, Sender(address) as sender:
        sender.send_batch([b"first", b"second"])
        assert mailbox.recv() == b"first"
        assert mailbox.redelivered == 0
        mailbox.requeue()
        assert mailbox.recv() == b"first"
        assert mailbox.redelivered == 1
        mailbox.requeue()
        with mailbox.recv_view():
            assert mailbox.redelivered == 1
        assert mailbox.recv() == b"second"
        assert mailbox.redelivered == 0
        mailbox.requeue()
        mailbox.close()
        with pytest.raises(Closed):
            sender.service()
        assert sender.take_unread() == [b"second"]


def test_exceptions_can_be_pickled(address: str) -> None:
    with Mailbox(address):
        with pytest.raises(AddressInUse) as used:
            Mailbox(address)
    copy = pickle.loads(pickle.dumps(used.value))
    assert (copy.errno, copy.pid, str(copy)) == (used.value.errno, os.getpid(), str(used.value))


def test_thousand_cycles_leave_nothing(tmp_path: Path) -> None:
    def cycle(number: int) -> None:
        address = tmp_path / f"mailbox{number % 2}"
        with Mailbox(address) as mailbox, Sender(address) as sender:
            sender.send(bytes(1000))
            sender.send(bytes(1000))
            mailbox.recv()
            with mailbox.recv_view() as view:
                assert len(view) == 1000
            with pytest.raises(WouldBlock):
                mailbox.try_recv()

    def resources() -> tuple[int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(os.listdir("/proc/self/fd")), pages

    for number in range(100):
        cycle(number)
    descriptors, pages = resources()
    for number in range(1000):
        cycle(number)
    after = resources()
    assert after[0] == descriptors
    assert after[1] - pages < 256, "expected to keep less than 1 MiB"
