"""Threads over blocks of samples, with one BLAS thread each, so that softmax and sparse products use every core.

Sums are added in the order of the blocks, so they do not depend on the number of threads. BLAS uses several threads
only for single factorizations, whose rounding may depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from math import inf
from threading import Lock
from typing import Any

from joblib import cpu_count
from threadpoolctl import ThreadpoolController

SMALLEST_SHARED = 1500  # size of a matrix from which BLAS factorizes it with several threads

_n_threads: ContextVar[int] = ContextVar("n_threads", default=1)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="annealed")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads


def available_threads() -> int:
    """Number of cores, or fewer if the user has limited BLAS (OMP_NUM_THREADS, threadpoolctl)."""
    blas = [library.get_num_threads() for library in _controller().lib_controllers if library.user_api == "blas"]
    return 1 if 1 in blas else min([cpu_count(), *blas])


@contextmanager
def threads_over_blocks() -> Iterator[None]:
    """A context in which `map_in_order` may use every available thread, each with one BLAS thread."""
    token = _n_threads.set(available_threads())
    try:
        with one_thread():
            yield
    finally:
        _n_threads.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """A context with one BLAS thread, for many small products that a second one would slow down.

    The BLAS limit belongs to the whole process. If fits overlap in several user threads, the first one sets the limit
    and the last one restores it.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class _SharedLimit:
    """Limits BLAS to one thread while at least one context is open."""

    def __init__(self):
        self._limit: Any = None
        self.forget()

    def forget(self):
        """In a forked process no context is open; a limit that its parent had set is lifted by the first to close."""
        self._lock, self._n_inside = Lock(), 0

    def enter(self):
        with self._lock:
            if self._limit is None:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._n_inside += 1

    def leave(self):
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                self._limit.restore_original_limits()
                self._limit = None


_limit = _SharedLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.forget)


@contextmanager
def blas_threads(size: int) -> Iterator[None]:
    """Inside `threads_over_blocks`: give BLAS all threads, for a factorization that cannot be split into blocks.

    For a matrix of small `size` it stays at one: on a busy machine, waiting threads cost more than they gain.
    """
    if size < SMALLEST_SHARED:
        yield
        return
    with _controller().limit(limits=_n_threads.get(), user_api="blas"):
        yield


def map_in_order(function: Callable, items: Iterable, most_threads: float = inf) -> Iterator:
    """`map`, in threads if the context allows them, yielding results in order.

    The calling thread works too, so that no core is left to threads that only wait. A result is yielded as soon as all
    earlier ones are, so few results are held at a time.
    """
    items = list(items)
    n_threads = int(min(_n_threads.get(), len(items), most_threads))
    return map(function, items) if n_threads < 2 else _shared(function, items, n_threads)


def _shared(function, items, n_threads):
    results: dict = {}
    numbers = count()

    def take_turn() -> bool:
        """Process the next item; whether there was one."""
        number = next(numbers)
        if number < len(items):
            results[number] = function(items[number])
        return number < len(items)

    def take_turns():
        while take_turn():
            pass

    helpers = [_pool(n_threads - 1).submit(take_turns) for _ in range(n_threads - 1)]
    try:
        for position in range(len(items)):
            while position not in results:
                token = _n_threads.set(1)
                try:
                    is_left = take_turn()
                finally:
                    _n_threads.reset(token)
                if not is_left:
                    _finish(helpers)
            yield results.pop(position)
    finally:
        _finish(helpers)


def _finish(helpers):
    """Wait for the helper threads; an exception in one of them is raised here."""
    for helper in helpers:
        helper.result()
