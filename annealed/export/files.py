"""Writes files completely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from annealed.errors import InputError

STANDARD_OUTPUT = Path("-")


def check_writable(path: Path) -> None:
    """Raise an error if a file cannot be written, before the computation of its content."""
    if path == STANDARD_OUTPUT:
        raise InputError("The output must be a file. Got '-', standard output, which only `predict` supports.")
    try:
        folder = path.resolve().parent
        if not _is_folder(folder):
            raise InputError(f"'{path.name}' cannot be written: the folder '{folder}' does not exist.")
        if _is_folder(path):
            raise InputError(f"The output must be a file. Got the folder '{path}'.")
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"'{path}' cannot be written: you have no write permission for the folder '{folder}'.")


def _is_folder(path):
    """Like `Path.is_dir`, but an inaccessible folder or a name that is too long raises an error in all versions."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def write_then_rename(path: Path, content: bytes) -> None:
    """Write a temporary file beside `path` and rename it, so that a reader never sees an incomplete file."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)  # a pipe or a device, such as /dev/stdout, cannot be replaced by renaming
            return
        check_writable(path)
        _replace(path.resolve(), content)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error


def _replace(path, content):
    partial = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".annealed.", delete=False) as file:
            partial = file.name
            file.write(content)
        os.chmod(partial, _mode(path))
        os.replace(partial, path)
    finally:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)


def _mode(path):
    """Permissions of the file that is replaced, so that a private file stays private, or else the default ones."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
