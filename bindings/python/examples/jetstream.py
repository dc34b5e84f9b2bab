"""Forwards a mailbox into a NATS JetStream stream and back, for messages that must outlive hosts.

Both roles forward one message at a time, in order. They acknowledge it to its source only after
the target has acknowledged it; between these two, it is *in doubt*: if a process dies, it may
arrive twice. Both roles print the messages in doubt, and `Outbox.in_doubt` (outbox.py) lists them
at the sender. JetStream removes repeats of a stamped message: its stamp is the `Nats-Msg-Id`.

    python jetstream.py into ADDRESS STREAM [--server URL]
    python jetstream.py out ADDRESS STREAM [--server URL] [--consumer NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import secrets
import sys
import time
from datetime import datetime

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, StreamConfig, StreamInfo
from nats.js.errors import KeyNotFoundError, NotFoundError, ServiceUnavailableError
from tontine import Closed, Error, Mailbox, NoMailbox, OwnerDied, Sender, TimedOut

STAMP = re.compile(rb"(\w{1,64}/\d{1,20})\n")  # the sender's lane, and the message's number in it
ACK_WAIT = 5.0  # seconds until JetStream repeats a message that `out` has not acknowledged


def stamp(message: bytes) -> str:
    """Returns a message's stamp, or a random one, with which no repeat after a death is removed."""
    found = STAMP.match(message)
    return found[1].decode() if found else secrets.token_hex(16)


async def into(client: Client, address: str, stream: StreamConfig) -> None:
    """Mailbox -> stream."""
    # A message may have a quarter of the cap: a longer one fails at its sender, not at the server.
    with Mailbox(address, cap=2 * client.max_payload) as mailbox:
        async for message in mailbox:
            name = stamp(message)
            try:
                await publish(client, stream, message, name)
            except BaseException:  # also Ctrl-C
                mailbox.requeue()  # its sender takes it back
                print(f"in doubt: {name}", flush=True)
                raise
            mailbox.ack()


async def publish(client: Client, stream: StreamConfig, message: bytes, name: str) -> None:
    """Publishes a message until the stream acknowledges it, while JetStream removes repeats."""
    subject, context, headers = str(stream.name), client.jetstream(), {"Nats-Msg-Id": name}
    deadline = time.monotonic() + (stream.duplicate_window or 0) / 2
    while True:
        try:
            ack = await context.publish(subject, message, timeout=2, headers=headers)
            return print(f"repeat removed: {name}", flush=True) if ack.duplicate else None
        except nats.errors.Error as error:
            if time.monotonic() > deadline:
                raise
            print(f"no acknowledgement: {name}: {error!r}", file=sys.stderr)
            await asyncio.sleep(0.2)


async def out(client: Client, address: str, stream: StreamInfo, consumer: str) -> None:
    """Stream -> mailbox."""
    context, name = client.jetstream(), str(stream.config.name)
    # A server that is killed forgets the last acknowledgements, but no value in a bucket.
    replicas, created = stream.config.num_replicas or 1, stream.created or datetime.min
    bucket = await context.create_key_value(bucket=f"{name}-delivered", replicas=replicas)
    key, delivered = f"{consumer}.{created:%Y%m%dT%H%M%S%f}", 0
    with contextlib.suppress(KeyNotFoundError):
        delivered = int((await bucket.get(key)).value or 0)
    # With one message pending, JetStream keeps the order when it repeats that message.
    config = ConsumerConfig(ack_wait=ACK_WAIT, max_ack_pending=1)
    messages = await context.pull_subscribe(name, consumer, name, config)
    sender, first = None, True
    while True:
        try:
            [message] = await messages.fetch(1, timeout=ACK_WAIT)
            number = message.metadata.sequence.stream
            if number > delivered:  # otherwise only the acknowledgement was lost
                if first or (message.metadata.num_delivered or 0) > 1:
                    print(f"in doubt: {stamp(message.data)}", flush=True)
                sender, delivered = await deliver(sender, address, message), number
                first = False
            await bucket.put(key, b"%d" % delivered)
            await message.ack()
        except nats.errors.TimeoutError:
            pass  # no message, or no server: the client connects again
        except nats.errors.Error as error:
            print(f"no message: {error!r}", file=sys.stderr)
            await asyncio.sleep(1)


async def deliver(sender: Sender | None, address: str, message: Msg) -> Sender:
    """Sends a message until a receiver acknowledges it, and returns the sender to that receiver."""
    while True:
        try:
            sender = sender or Sender(address)
            sender.send(message.data)
            while True:
                try:
                    sender.wait_acked(timeout=1)
                    return sender
                except TimedOut:
                    await message.in_progress()
        except (OwnerDied, Closed, NoMailbox) as error:
            if sender and sender.take_unread():
                print(f"in doubt: {stamp(message.data)}: {error}", flush=True)
            sender = None
            await message.in_progress()
            await asyncio.sleep(0.2)


async def run(arguments: argparse.Namespace) -> None:
    client, found = Client(), [Exception("no reply")]

    async def report(error: Exception) -> None:
        found[0] = error
        if client.is_reconnecting:
            print(f"connecting again: {error!r}", file=sys.stderr)

    try:
        connected = client.connect(arguments.server, error_cb=report, max_reconnect_attempts=-1)
        await asyncio.wait_for(connected, timeout=5)
    except (asyncio.TimeoutError, OSError, nats.errors.Error) as error:
        sys.exit(
            f"cannot connect: expected a NATS server at {arguments.server}, found: "
            f"{found[0] if isinstance(error, asyncio.TimeoutError) else error}; "
            "start one with `nats-server --jetstream --store_dir DIR`, or name it with --server"
        )
    try:
        try:
            stream = await client.jetstream().stream_info(arguments.stream)
        except NotFoundError:
            config = StreamConfig(arguments.stream, subjects=[arguments.stream])
            stream = await client.jetstream().add_stream(config)
        if arguments.role == "into":
            await into(client, arguments.address, stream.config)
        else:
            await out(client, arguments.address, stream, arguments.consumer)
    except ServiceUnavailableError:
        sys.exit(
            f"cannot use a stream: expected JetStream at {arguments.server}, found a server "
            "without it; start the server with `--jetstream --store_dir DIR`"
        )
    finally:
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("role", choices=["into", "out"])
    parser.add_argument("address")
    parser.add_argument("stream")
    parser.add_argument("--server", default="nats://127.0.0.1:4222")
    parser.add_argument("--consumer", default="out", help="name of the role `out` in the stream")
    try:
        asyncio.run(run(parser.parse_args()))
    except KeyboardInterrupt:
        sys.exit(130)
    except (Error, nats.errors.Error) as error:
        sys.exit(f"cannot forward: {error}")


if __name__ == "__main__":
    main()
