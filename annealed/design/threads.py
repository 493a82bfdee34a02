"""One BLAS thread where a block's product is too small to share: there, more threads only get in each other's way."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

from annealed.design.base import Design

SHARED_PRODUCT = 2e7  # multiplications of one block's product from which threads pay


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(design: Design) -> AbstractContextManager:
    """A context in which BLAS uses as many threads as this design's blocks can feed."""
    rows = min(design.n_rows, design.block_rows(design.n_fits))
    if rows * design.n_features * design.n_fits * design.n_classes >= SHARED_PRODUCT:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")
