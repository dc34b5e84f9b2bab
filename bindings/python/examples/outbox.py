"""A sender whose messages survive each death of their receiver.

After a receiver's death, the sender takes back what that receiver had not acknowledged, and sends
it to the address's next owner. The receiver may have acted on the first of these messages: it is
*in doubt*, and may arrive twice. A stamp in front of each message tells repeats apart. Here two
receivers are killed with SIGKILL, each after it has printed a message and before it acknowledges.

    python outbox.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import secrets
import signal
import sys
from collections import deque

from tontine import Closed, Mailbox, OwnerDied, Sender


class Outbox:
    """Sends stamped messages. `in_doubt` lists those that may arrive twice, oldest first."""

    def __init__(self, address: str) -> None:
        self.in_doubt: list[bytes] = []
        self._unsent: deque[bytes] = deque()
        self._lane, self._numbers = secrets.token_hex(8).encode(), itertools.count(1)
        self._sender = Sender(address, timeout=None)

    def send(self, payload: bytes) -> None:
        """Sends the payload after its stamp: this sender's lane, a number, and a newline."""
        self._unsent.append(b"%s/%d\n%s" % (self._lane, next(self._numbers), payload))
        self._send_unsent(wait=False)

    def wait_acked(self) -> None:
        """Waits until a receiver has acknowledged each message."""
        self._send_unsent(wait=True)

    def _send_unsent(self, wait: bool) -> None:
        while True:
            try:
                while self._unsent:
                    self._sender.send(self._unsent[0])
                    self._unsent.popleft()
                return self._sender.wait_acked() if wait else None
            except (OwnerDied, Closed):
                unread = self._sender.take_unread()
                if unread[:1] != self.in_doubt[-1:]:  # listed once, even if several receivers die
                    self.in_doubt += unread[:1]  # the receiver had not begun with the others
                self._unsent.extendleft(reversed(unread))
                self._sender.close()
                self._sender = Sender(self._sender.address, timeout=None)


def receive(address: str, deadly: bytes) -> None:
    """Prints messages until the last one, or dies of one of them."""
    with Mailbox(address) as mailbox:
        for message in mailbox:
            payload = message.partition(b"\n")[2]
            print(f"pid {os.getpid()} received {payload.decode()}", flush=True)
            if payload == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            if payload == b"message 5":
                break


def supervise(address: str) -> None:
    """Starts the next receiver when one has ended."""
    for deadly in (b"message 2", b"message 4", b""):
        receiver = multiprocessing.Process(target=receive, args=(address, deadly))
        receiver.start()
        receiver.join()


def main() -> None:
    address = f"@outbox-{os.getpid()}"
    supervisor = multiprocessing.Process(target=supervise, args=(address,))
    supervisor.start()
    outbox = Outbox(address)
    for number in range(1, 6):
        outbox.send(b"message %d" % number)
    outbox.wait_acked()
    supervisor.join()
    payloads = [message.partition(b"\n")[2].decode() for message in outbox.in_doubt]
    print("in doubt:", ", ".join(payloads))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
