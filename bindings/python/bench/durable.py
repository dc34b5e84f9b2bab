"""Compares the latency of an acknowledged message: a mailbox, and a JetStream stream on this host.

One process sends 64 bytes, and waits until they are acknowledged, then sends the next message. The
rows are of five runs in turn, each with a fresh server, and show the median of the runs' quantiles
and their range. The server stores the stream in the folder, whose disk determines the last row.

    python durable.py [--folder FOLDER] [--messages 5000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nats
from tontine import Mailbox, Sender

MESSAGE, RUNS, WARM_UP = bytes(64), 5, 500


def receive(address: str) -> None:
    with Mailbox(address) as mailbox:
        for _ in mailbox:
            mailbox.ack()


def mailbox(count: int) -> list[float]:
    address, latencies = f"@durable-{os.getpid()}-{time.monotonic_ns()}", []
    receiver = multiprocessing.get_context("fork").Process(target=receive, args=(address,))
    receiver.start()
    with Sender(address, timeout=10) as sender:
        for _ in range(count):
            start = time.perf_counter()
            sender.send(MESSAGE)
            sender.wait_acked()
            latencies.append(time.perf_counter() - start)
    receiver.kill()
    receiver.join()
    return latencies


async def publish(url: str, count: int) -> list[float]:
    latencies = []
    async with await nats.connect(url) as client:
        stream = client.jetstream()
        await stream.add_stream(name="durable", subjects=["durable"])
        for _ in range(count):
            start = time.perf_counter()
            await stream.publish("durable", MESSAGE)
            latencies.append(time.perf_counter() - start)
    return latencies


def jetstream(folder: str, count: int, sync: str) -> list[float]:
    with tempfile.TemporaryDirectory(dir=folder) as store:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        config = Path(store, "server.conf")
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{store}", sync_interval: {sync} }}\n'
        )
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
        program = shutil.which("nats-server", path=path)
        if program is None:
            sys.exit("expected nats-server next to Python or on PATH, found none; install it")
        server = subprocess.Popen([program, "--config", config], stderr=subprocess.DEVNULL)
        try:
            for _ in range(500):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            return asyncio.run(publish(f"nats://127.0.0.1:{port}", count))
        finally:
            server.kill()
            server.wait()


def microseconds(values: list[float]) -> str:
    low, middle, high = (1e6 * f for f in (min(values), statistics.median(values), max(values)))
    return f"{middle:7.0f} µs ({low:.0f} – {high:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", default=".", help="folder for the server's store")
    parser.add_argument("--messages", type=int, default=5000)
    arguments = parser.parse_args()
    rows: dict[str, tuple[list[float], list[float]]] = {
        "mailbox": ([], []),
        "JetStream, written to disk every 2 min": ([], []),
        "JetStream, sync_interval: always": ([], []),
    }
    for _ in range(RUNS):
        for name, (p50, p99) in rows.items():
            count = arguments.messages + WARM_UP
            if name == "mailbox":
                latencies = mailbox(count)
            else:
                sync = "always" if name.endswith("always") else "2m"
                latencies = jetstream(arguments.folder, count, sync)
            quantiles = statistics.quantiles(latencies[WARM_UP:], n=100)
            p50.append(quantiles[49])
            p99.append(quantiles[98])
    for name, (p50, p99) in rows.items():
        print(f"{name:40} p50 {microseconds(p50)}   p99 {microseconds(p99)}")


if __name__ == "__main__":
    main()
