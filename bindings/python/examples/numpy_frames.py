"""A camera process sends NumPy frames; the receiver reads them in place, without a copy.

A frame is a NumPy record: its number and its pixels. The camera's `send` copies it into shared
memory, and the receiver's `recv_view` shows it there. At the end the receiver kills the camera
with SIGKILL, and the mailbox reports this death with `SenderDied`.

    python numpy_frames.py [fork | spawn | forkserver]
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import numpy

from tontine import Mailbox, Sender, SenderDied

FRAME = numpy.dtype([("number", numpy.uint32), ("pixels", numpy.uint8, (480, 640))])
FRAMES = 25


def camera(address: str) -> None:
    """Sends frames, each brighter than the one before."""
    frame = numpy.zeros((), FRAME)
    with Sender(address, timeout=10) as sender:
        for number in range(FRAMES):
            frame["number"] = number
            frame["pixels"] = 10 * number
            sender.send(frame)  # any object with a buffer
        time.sleep(60)  # until it is killed


def brightness(view: memoryview) -> tuple[int, float]:
    """Returns a frame's number and the mean of its pixels."""
    # No copy. The array must not outlive the view's `with` statement: it ends with this function.
    frame = numpy.frombuffer(view, FRAME)[0]
    return int(frame["number"]), float(frame["pixels"].mean())


def main() -> None:
    address = f"@camera-{os.getpid()}"
    with Mailbox(address, report_deaths=True) as mailbox:
        process = multiprocessing.Process(target=camera, args=(address,), daemon=True)
        process.start()
        try:
            while True:
                with mailbox.recv_view(timeout=10) as view:
                    number, mean = brightness(view)
                if number % 8 == 0:
                    print(f"frame {number}: mean {mean:.0f}")
                if number == FRAMES - 1:
                    process.kill()
        except SenderDied as death:
            assert death.pid == process.pid
            print(f"the camera was killed after frame {number}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    main()
