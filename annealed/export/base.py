"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from annealed.tables import InputError


def write_then_rename(path: Path, content: bytes) -> None:
    """Write beside `path` and rename: whoever looks sees the old file or the new one, never a part."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InputError(f"There is no folder '{folder}' to write '{path.name}' in.")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the name of a file to write.")
    partial = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}.", delete=False) as file:
            partial = file.name
            file.write(content)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
    finally:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
