"""The example ``jetstream.py``: a mailbox is forwarded into a stream and back, under kills.

The tests start a NATS server of their own, on a free port of the loopback interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox import Outbox
from tontine import Closed, OwnerDied, Sender
from waiting import until

nats = pytest.importorskip("nats", reason="skipped: the package nats-py is not installed")

EXAMPLE = Path(__file__).parent.parent / "examples" / "jetstream.py"
STREAM = "mail"
RECEIVER = """
import os, sys, tontine
with tontine.Mailbox(sys.argv[1]) as mailbox:
    for message in mailbox:
        os.write(1, message.replace(b"\\n", b" ") + b"\\n")
"""


class Server:
    """A NATS server that can be killed and started again with the same port and store."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        arguments = ["--addr", "127.0.0.1", "--port", str(self.port), "--log", str(self.log)]
        self._command = [program, *arguments, *options]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        until(lambda: process.poll() is not None or self._answers(), f"a server on {self.url}")
        assert process.poll() is None, self.log.read_text()
        return process

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def stop(self) -> None:
        """Returns once all threads of the server have stopped."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._start()

    def unread_bytes(self) -> int:
        """Returns the number of bytes that the server has not read from its connections."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        rows = (line.split() for line in lines)
        queues = (
            row[4] for row in rows if row[3] == "01" and row[1] == f"0100007F:{self.port:04X}"
        )
        return sum(int(queue.split(":")[1], 16) for queue in queues)

    def messages(self) -> list[bytes]:
        """Returns the messages in the stream."""

        async def read() -> list[bytes]:
            async with await nats.connect(self.url) as client:
                stream = client.jetstream()
                last = (await stream.stream_info(STREAM)).state.last_seq
                return [(await stream.get_msg(STREAM, seq)).data for seq in range(1, last + 1)]

        return asyncio.run(read())


def free_port() -> int:
    """Returns a port that is free, and that the kernel does not give to a client."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Program:
    """A process of the test, with its output in a file."""

    def __init__(self, output: Path, *arguments: str) -> None:
        self.output = output
        with output.open("ab") as stdout:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=stdout, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def lines(self, start: str = "") -> list[str]:
        """Returns the rest of each line of output that begins with ``start``."""
        lines = self.output.read_text().splitlines()
        return [line[len(start) :] for line in lines if line.startswith(start)]


class Bed:
    """A server, the forwarders of a test, and their addresses."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.address = folder, str(folder / "mailbox")
        store = str(folder / "store")
        self.server = Server(program, folder, "--jetstream", "--store_dir", store)
        self.programs: list[Program] = []

    def forward(self, role: str, address: str = "") -> Program:
        """Starts a forwarder; the output of each role is in one file."""
        arguments = [str(EXAMPLE), role, address or self.address, STREAM, "--server"]
        return self.start(role, *arguments, self.server.url)

    def start(self, name: str, *arguments: str) -> Program:
        self.programs.append(Program(self.folder / name, *arguments))
        return self.programs[-1]

    def end(self) -> None:
        for program in self.programs:
            program.kill()
        self.server.kill()


@pytest.fixture(scope="module")
def nats_server() -> str:
    """The server's program: that of the wheel, or else that of the system."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    program = shutil.which("nats-server", path=path)
    if program is None:
        pytest.skip("skipped: nats-server is not installed")
    return program


@pytest.fixture
def bed(tmp_path: Path, nats_server: str) -> Iterator[Bed]:
    bed = Bed(tmp_path, nats_server)
    yield bed
    bed.end()


def stamp(message: bytes) -> str:
    return message.partition(b"\n")[0].decode()


def test_message_published_before_death_is_in_doubt_and_stored_once(bed: Bed) -> None:
    first, outbox = bed.forward("into"), Outbox(bed.address)
    outbox.send(b"stored")
    outbox.wait_acked()
    bed.server.stop()
    outbox.send(b"in doubt")
    outbox.send(b"not taken")
    until(bed.server.unread_bytes, "a message that the stopped server has not read")
    first.kill()  # between the publication and its acknowledgement
    bed.server.resume()
    until(lambda: len(bed.server.messages()) == 2, "the message in doubt in the stream")
    second = bed.forward("into")
    outbox.wait_acked()
    messages = bed.server.messages()
    assert [message.partition(b"\n")[2] for message in messages] == [
        b"stored",
        b"in doubt",
        b"not taken",
    ]
    assert outbox.in_doubt == [messages[1]]
    assert second.lines("repeat removed: ") == [stamp(messages[1])]


def test_only_message_in_doubt_is_repeated_without_stamp(bed: Bed) -> None:
    first, messages = bed.forward("into"), [b"stored", b"in doubt", b"not taken"]
    with Sender(bed.address, timeout=None) as sender:
        sender.send(messages[0])
        sender.wait_acked()
        bed.server.stop()
        sender.send_batch(messages[1:])
        until(bed.server.unread_bytes, "a message that the stopped server has not read")
        first.kill()
        bed.server.resume()
        with pytest.raises(OwnerDied):
            sender.wait_acked()
        unread = sender.take_unread()
        assert unread == messages[1:]
    bed.forward("into")
    with Sender(bed.address, timeout=None) as sender:
        sender.send_batch(unread)
        sender.wait_acked()
    assert Counter(bed.server.messages()) == Counter(messages + [unread[0]])


def test_ctrl_c_prints_message_in_doubt_and_returns_it(bed: Bed) -> None:
    forwarder = bed.forward("into")
    with Sender(bed.address, timeout=None) as sender:
        sender.send(b"lane/1\nstored")
        sender.wait_acked()
        bed.server.stop()
        sender.send(b"lane/2\nin doubt")
        until(bed.server.unread_bytes, "a message that the stopped server has not read")
        forwarder.process.send_signal(signal.SIGINT)
        assert forwarder.process.wait(40) == 130
        assert forwarder.lines("in doubt: ") == ["lane/2"]
        with pytest.raises(Closed):
            sender.service()
        assert sender.take_unread() == [b"lane/2\nin doubt"]


def test_message_without_acknowledgement_is_repeated_to_restarted_server(bed: Bed) -> None:
    bed.forward("into")
    outbox = Outbox(bed.address)
    outbox.send(b"stored")
    outbox.wait_acked()
    bed.server.stop()
    outbox.send(b"published to a server that is killed")
    until(bed.server.unread_bytes, "a message that the stopped server has not read")
    bed.server.restart()
    outbox.wait_acked()
    assert len(bed.server.messages()) == 2
    assert outbox.in_doubt == []


def test_no_message_is_lost_or_stored_twice_under_kills(bed: Bed) -> None:
    outboxes: list[Outbox] = []
    forwarder = bed.forward("into")

    def produce() -> None:
        outbox = Outbox(bed.address)
        outboxes.append(outbox)
        for number in range(400):
            outbox.send(b"%d" % number)
        outbox.wait_acked()

    producers = [threading.Thread(target=produce, daemon=True) for _ in range(2)]
    for producer in producers:
        producer.start()
    for kill in ("forwarder", "server", "forwarder", "server and forwarder"):
        time.sleep(random.uniform(0.05, 0.3))
        if "forwarder" in kill:
            forwarder.kill()
        if "server" in kill:
            bed.server.restart()
        if "forwarder" in kill:
            forwarder = bed.forward("into")
    until(lambda: not any(producer.is_alive() for producer in producers), "all acknowledged")
    bed.server.restart()  # both ends of the mailbox may be lost now
    messages = bed.server.messages()
    assert len(messages) == len(set(messages)) == 800
    lanes: dict[str, list[int]] = {}
    for message in messages:
        lane, number = stamp(message).split("/")
        lanes.setdefault(lane, []).append(int(number))
    assert list(lanes.values()) == [list(range(1, 401))] * 2
    in_doubt = {stamp(message) for outbox in outboxes for message in outbox.in_doubt}
    # A forwarder also repeats a message by itself, if a server was killed before it acknowledged.
    repeats = set(forwarder.lines("repeat removed: "))
    repeated = {line.split(":")[0] for line in forwarder.lines("no acknowledgement: ")}
    assert repeats <= in_doubt | repeated


def test_messages_received_twice_were_in_doubt(bed: Bed) -> None:
    messages, received = 400, str(bed.folder / "receiver")
    into = bed.forward("into")
    outbox = Outbox(bed.address)
    for number in range(messages):
        outbox.send(b"%d" % number)
    outbox.wait_acked()
    into.kill()
    bed.server.restart()
    forwarder = bed.forward("out", received)
    receiver = bed.start("received", "-c", RECEIVER, received)

    def wait_for(count: int) -> None:
        until(lambda: len(receiver.lines()) >= count, f"{count} messages")

    kills = "receiver", "forwarder", "server", "server and forwarder", "receiver"
    for count, kill in enumerate(kills, 1):
        wait_for(60 * count)
        if "server" in kill:
            bed.server.kill()
        if "forwarder" in kill:
            forwarder.kill()
        if "server" in kill:
            bed.server.restart()
        if "forwarder" in kill:
            forwarder = bed.forward("out", received)
        if "receiver" in kill:
            receiver.kill()
            receiver = bed.start("received", "-c", RECEIVER, received)
    until(lambda: f"{messages} {messages - 1}" in receiver.output.read_text(), "all messages")
    numbers = [int(line.split()[1]) for line in receiver.lines()]
    assert list(dict.fromkeys(numbers)) == list(range(messages)), "in order"
    twice = {number for number, count in Counter(numbers).items() if count > 1}
    stamps = [line.split(":")[0] for line in forwarder.lines("in doubt: ")]
    in_doubt = {int(stamp.split("/")[1]) - 1 for stamp in stamps}
    assert twice <= in_doubt and len(in_doubt) <= 6, "at most one for each start and kill"


def test_missing_server_is_reported() -> None:
    url = f"nats://127.0.0.1:{free_port()}"

    def start(role: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLE), role, "@unused", STREAM, "--server", url]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)

    # Each waits five seconds for the server.
    for process in [start(role) for role in ("into", "out")]:
        output, errors = process.communicate(timeout=50)
        assert (process.returncode, output) == (1, "")
        assert errors.startswith(f"cannot connect: expected a NATS server at {url}, found: ")
        assert "Connect call failed" in errors


def test_server_without_jetstream_is_reported(tmp_path: Path, nats_server: str) -> None:
    server = Server(nats_server, tmp_path)
    command = [sys.executable, str(EXAMPLE), "into", "@unused", STREAM, "--server", server.url]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    finally:
        server.kill()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "expected JetStream" in ended.stderr and "Traceback" not in ended.stderr
