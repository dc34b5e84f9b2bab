"""Messages between two hosts: two gateways on one machine carry them from Python to Python."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest

import tontine
from waiting import until

#: The command `tontine`; `cargo xtask python` names the one that it built.
PROGRAM = os.environ.get("TONTINE_PROGRAM") or shutil.which("tontine")


#: Each pair of gateways has a port of its own, below those that the kernel gives to clients.
PORTS = itertools.count(7447)


def own_address() -> str:
    """Returns an address of loopback that no other process and no other test uses."""
    pid = os.getpid()
    return f"127.{1 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}:{next(PORTS)}"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Runs two gateways. Returns the mailbox's address on its host, and on the other one."""
    if PROGRAM is None:
        pytest.skip("skipped: no command tontine was found; set TONTINE_PROGRAM")
    address = own_address()
    jobs, imported = tmp_path / "jobs", tmp_path / "far-jobs"
    (tmp_path / "near.toml").write_text(
        f'name = "near"\nstatus = "{tmp_path}/near.status"\n'
        f'[peers.far]\nconnect = "{address}"\n[imports]\n"far/jobs" = "{imported}"\n'
    )
    (tmp_path / "far.toml").write_text(
        f'name = "far"\nstatus = "{tmp_path}/far.status"\nlisten = "{address}"\n'
        f'[peers.near]\n[exports]\njobs = "{jobs}"\n'
    )
    command = [PROGRAM, "bridge", "--log", "warn", "--config"]
    gateways = [
        subprocess.Popen([*command, f"{tmp_path}/{name}.toml"]) for name in ("far", "near")
    ]
    try:
        until(imported.exists, "the gateway to start")
        yield jobs, imported
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.wait()


def test_messages_cross_two_gateways(hosts: tuple[Path, Path]) -> None:
    jobs, imported = hosts
    with tontine.Mailbox(jobs) as mailbox, tontine.Sender(imported) as sender:
        for number in range(100):
            sender.send(number.to_bytes(8, "little"))
        for number in range(100):
            assert mailbox.recv(timeout=30) == number.to_bytes(8, "little")
        mailbox.ack()
        sender.wait_acked(timeout=30)


def test_close_of_far_mailbox_is_reported(hosts: tuple[Path, Path]) -> None:
    jobs, imported = hosts
    mailbox = tontine.Mailbox(jobs)
    sender = tontine.Sender(imported)
    sender.send(b"first")
    assert mailbox.recv(timeout=30) == b"first"
    mailbox.close()
    with pytest.raises(tontine.Closed):
        end = time.monotonic() + 40
        while time.monotonic() < end:
            sender.send(b"late")
            time.sleep(0.01)
