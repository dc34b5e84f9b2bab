"""An asyncio server: three clients send requests, and the server replies to each of them.

Each client receives its replies in a mailbox of its own, whose address is in its requests. The
server accepts only clients of its own user (the default), waits at most one second for a client
that does not receive its replies, and keeps at most 256 connections.

    python asyncio_server.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys

from tontine import Error, Mailbox, Sender

CLIENTS = 3
REQUESTS = 4
MAX_SENDERS = 256


def client(server: str) -> None:
    """Asks for squares, and checks the replies."""
    address = f"@client-{os.getpid()}"
    with Mailbox(address) as replies, Sender(server, timeout=10) as requests:
        for number in range(REQUESTS):
            requests.send(json.dumps({"reply_to": address, "number": number}).encode())
            assert json.loads(replies.recv(timeout=10)) == {"number": number, "square": number**2}


async def serve(mailbox: Mailbox) -> None:
    """Replies to the requests of all clients."""
    senders: dict[str, Sender] = {}
    served = 0
    async for message in mailbox:
        request = json.loads(message)
        address, number = request["reply_to"], request["number"]
        reply = json.dumps({"number": number, "square": number**2}).encode()
        try:
            if address not in senders:
                if len(senders) == MAX_SENDERS:
                    senders.clear()  # clients still receive what was sent
                senders[address] = Sender(address)
            await asyncio.wait_for(senders[address].send_async(reply), timeout=1)
        except (Error, asyncio.TimeoutError):
            senders.pop(address, None)  # the client has ended, or does not receive
        served += 1
        if served == CLIENTS * REQUESTS:
            break
    print(f"served {served} requests of {len(senders)} clients")


def main() -> None:
    server = f"@server-{os.getpid()}"
    with Mailbox(server) as mailbox:
        processes = [
            multiprocessing.Process(target=client, args=(server,)) for _ in range(CLIENTS)
        ]
        for process in processes:
            process.start()
        asyncio.run(serve(mailbox))
        for process in processes:
            process.join()
        print(f"exit codes of the clients: {[process.exitcode for process in processes]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
