"""Fitted models outside of Python: data that is safe to load, and files written completely or not at all."""

from annealed.export.files import STANDARD_OUTPUT, check_writable, write_then_rename
from annealed.export.model_data import TRUSTED, load_trusted, model_bytes, untrusted_types

__all__ = [
    "STANDARD_OUTPUT",
    "TRUSTED",
    "check_writable",
    "load_trusted",
    "model_bytes",
    "untrusted_types",
    "write_then_rename",
]
