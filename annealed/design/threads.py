"""Threads over row blocks, one BLAS thread each: softmax and sparse products then use every core too.

Sums are added in the order of the blocks, whichever thread made them: they do not depend on the number of threads. BLAS
gets all threads for single factorizations only, whose rounding may.
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

SMALLEST_SHARED = 1500

_n_threads: ContextVar[int] = ContextVar("n_threads", default=1)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="annealed")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def available_threads() -> int:
    """Cores, or fewer where the user has limited BLAS (OMP_NUM_THREADS, threadpoolctl)."""
    blas = [own.get_num_threads() for own in _controller().lib_controllers if own.user_api == "blas"]
    return 1 if 1 in blas else min([cpu_count(), *blas])


@contextmanager
def threads_over_blocks() -> Iterator[None]:
    """A context in which `map_in_order` may use every available thread, and BLAS one in each."""
    token = _n_threads.set(available_threads())
    try:
        with one_thread():
            yield
    finally:
        _n_threads.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """A context for many small products, which a second BLAS thread only slows.

    BLAS has one limit for the whole process: of fits that overlap in threads of the user's the first sets it, and the
    last gives back what it was.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class _SharedLimit:
    """One thread for BLAS, as long as anybody is inside."""

    def __init__(self):
        self._lock, self._n_inside = Lock(), 0
        self._limit: Any = None

    def enter(self):
        with self._lock:
            if not self._n_inside:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._n_inside += 1

    def leave(self):
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                self._limit.restore_original_limits()


_limit = _SharedLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.__init__)  # type: ignore[misc]  # nobody is inside there


@contextmanager
def blas_threads(size: int) -> Iterator[None]:
    """Inside `threads_over_blocks`: all threads to BLAS, for a factorization that blocks of rows cannot share.

    On a busy machine threads that wait for each other cost far more than they bring to a matrix of small `size`.
    """
    if size < SMALLEST_SHARED:
        yield
        return
    with _controller().limit(limits=_n_threads.get(), user_api="blas"):
        yield


def map_in_order(function: Callable, items: Iterable, most_threads: float = inf) -> Iterator:
    """`map`, in threads where the context allows them: the calling one takes its share, so that a core is never left to
    threads that wait for each other. Each result is handed over as soon as those before it are: few are ever held.
    """
    items = list(items)
    n_threads = int(min(_n_threads.get(), len(items), most_threads))
    return map(function, items) if n_threads < 2 else _shared(function, items, n_threads)


def _shared(function, items, n_threads):
    made: dict = {}
    numbers = count()

    def take_turn() -> bool:
        """Whether there was an item left."""
        number = next(numbers)
        if number < len(items):
            made[number] = function(items[number])
        return number < len(items)

    def take_turns():
        while take_turn():
            pass

    helpers = [_pool(n_threads - 1).submit(take_turns) for _ in range(n_threads - 1)]
    try:
        for wanted in range(len(items)):
            while wanted not in made:
                token = _n_threads.set(1)
                try:
                    is_left = take_turn()
                finally:
                    _n_threads.reset(token)
                if not is_left:
                    _finish(helpers)
            yield made.pop(wanted)
    finally:
        _finish(helpers)


def _finish(helpers):
    """Wait for them; an error of one of them is raised."""
    for helper in helpers:
        helper.result()
