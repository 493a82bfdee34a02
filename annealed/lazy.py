"""Attributes that are computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class cached_property(Generic[Value]):
    """`functools.cached_property` as Python 3.12 has it, without the lock of Python 3.11.

    That lock is shared by all instances of a class. A process that is forked while another thread holds it waits
    forever. Without it, two threads that read an attribute at once may both compute it.
    """

    def __init__(self, function: Callable[[Any], Value]):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        if instance is None:
            return self  # type: ignore[return-value]
        value = instance.__dict__[self.name] = self.function(instance)
        return value
