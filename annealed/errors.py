"""Errors of every part that reads the user's files."""

from __future__ import annotations


class InputError(ValueError):
    """The user's input cannot be used; the message tells the user why in one line."""
