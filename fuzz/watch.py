"""Watches a process for anything that code hidden in a file would do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORBIDDEN = ("exec", "compile", "import", "marshal.loads", "pickle.find_class", "code.__new__", "function.__new__")
FORBIDDEN_FAMILIES = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "tempfile.", "urllib.", "webbrowser.")
HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

found: list[str] = []
_is_watching = False
_may_write: Path | None = None


def _hook(event, arguments):
    if not _is_watching:
        return
    is_family = event.startswith(FORBIDDEN_FAMILIES) and event not in HARMLESS
    if event in FORBIDDEN or is_family or (event == "open" and _writes(*arguments)):
        if not _is_inside(arguments):
            found.append(f"{event} {str(arguments)[:200]}")


def _writes(path, mode, flags):
    return bool(flags & WRITING) if isinstance(flags, int) else bool(set(mode or "r") & set("wax+"))


def _is_inside(arguments):
    """Whether an event concerns only files in the folder where the watched code may write."""
    paths = [argument for argument in arguments if isinstance(argument, str | bytes | os.PathLike)]
    folder = str(_may_write)
    return _may_write is not None and bool(paths) and str(os.fsdecode(paths[0])).startswith(folder)


@contextmanager
def watching(may_write: Path | None = None) -> Iterator[list[str]]:
    """Collect events of the block that run code, start processes, open connections, or write files elsewhere.

    Modules that are imported lazily must have been imported before.
    """
    global _is_watching, _may_write
    found.clear()
    _is_watching, _may_write = True, may_write
    try:
        yield found
    finally:
        _is_watching = False


sys.addaudithook(_hook)
