"""Reads what a child process prints, until it ends or prints nothing for too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator


def lines_of(child: subprocess.Popen[bytes], patience: float) -> Iterator[list]:
    """Results, one line of JSON each, as the child prints them."""
    assert child.stdout is not None
    buffer = b""
    while select.select([child.stdout], [], [], patience)[0]:
        chunk = os.read(child.stdout.fileno(), 1 << 16)
        if not chunk:
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from map(json.loads, lines)
