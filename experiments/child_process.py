"""Runs a function in a new process, with a limit of CPU seconds that ends the process. POSIX only."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChildEnded(RuntimeError):
    """The process ended without an answer; `is_limit` says whether it exceeded its limit of CPU seconds."""

    def __init__(self, exit_code: int):
        self.is_limit = exit_code == -signal.SIGXCPU
        super().__init__(f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}")


def call(function: Callable, *arguments, preload: str):
    """`function(*arguments)`, computed in a new process. `preload` is a module that all these processes need.

    The processes are forked from a server that has imported `preload`, so they start quickly. The variables are for the
    server: BLAS threads that it starts when it is imported would add CPU time while they wait.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()  # the process has the only other copy: `recv` ends when it is killed
    with receiver:
        try:
            return receiver.recv()
        except EOFError:
            process.join()
            raise ChildEnded(process.exitcode) from None
        finally:
            process.join()
            process.close()


def _answer(sender, function: Callable, arguments: tuple) -> None:
    with sender:
        sender.send(function(*arguments))


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End this process, without a core dump, if the block takes more than this CPU time, rounded up to a second."""
    import resource  # not on Windows

    if math.isinf(seconds):
        yield
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)  # RLIM_INFINITY is -1
    wanted = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard < 0 else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
