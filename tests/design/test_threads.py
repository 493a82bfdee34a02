"""Threads change the time a pass takes, never its result."""

import numpy as np
import pytest
from problems import gaussian
from threadpoolctl import threadpool_limits

from annealed import InnerProductADA
from annealed.design import DenseDesign, threads


def test_order_is_kept_and_errors_come_through():
    with threads.threads_over_blocks():
        assert list(threads.map_in_order(lambda item: item * 2, range(50))) == list(range(0, 100, 2))
        with pytest.raises(ZeroDivisionError):
            list(threads.map_in_order(lambda item: 1 / item, [1, 0, 2]))


def test_outside_the_context_there_is_one_thread():
    assert threads._n_threads.get() == 1
    with threads.threads_over_blocks():
        assert threads._n_threads.get() == threads.available_threads()
    assert threads._n_threads.get() == 1


def test_users_limit_is_respected():
    with threadpool_limits(1, user_api="blas"):
        assert threads.available_threads() == 1


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(DenseDesign, "block_rows", lambda self, n_fits: 7)
    table = gaussian()
    paths = []
    for n_threads in (1, 2, 5):
        monkeypatch.setattr(threads, "available_threads", lambda n_threads=n_threads: n_threads)
        paths.append(InnerProductADA().fit(table.X, table.y).path_)
    assert paths[0] == paths[1] == paths[2]
    assert np.isfinite(paths[0].coef).all()
