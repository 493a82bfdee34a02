"""Threads change the duration of a pass, never its result."""

import os
from multiprocessing import get_context
from threading import Barrier, Event, Thread, get_ident
from time import sleep
from weakref import WeakSet

import numpy as np
import pytest
from small_problems import gaussian
from threadpoolctl import threadpool_info, threadpool_limits

from annealed import AnnealedLogisticRegression
from annealed.lazy import cached_property
from annealed.rows import DenseDesign, SinglePrecisionRows, principal_coordinates, threads


def test_order_is_kept_and_errors_are_raised():
    with threads.threads_over_blocks():
        assert list(threads.map_in_order(lambda item: item * 2, range(50))) == list(range(0, 100, 2))
        with pytest.raises(ZeroDivisionError):
            list(threads.map_in_order(lambda item: 1 / item, [1, 0, 2]))


def test_outside_the_context_there_is_one_thread():
    available = threads.available_threads()
    assert threads._n_threads.get() == 1
    with threads.threads_over_blocks():
        assert threads._n_threads.get() == available
    assert threads._n_threads.get() == 1


def test_the_calling_thread_works_too_and_its_nested_maps_stay_in_it(monkeypatch):
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    meeting = Barrier(3)

    def inner_threads(_):
        meeting.wait(timeout=60)  # passes only if three items run at once
        return set(threads.map_in_order(lambda _: get_ident(), range(4)))

    with threads.threads_over_blocks():
        thread_ids = list(threads.map_in_order(inner_threads, range(3)))
        assert threads._n_threads.get() == 3
    assert all(len(ids) == 1 for ids in thread_ids)
    assert {get_ident()} in thread_ids
    assert len(set.union(*thread_ids)) == 3


def thread_after_a_pause(_):
    sleep(0.01)
    return get_ident()


def test_most_threads_is_respected(monkeypatch):
    monkeypatch.setattr(threads, "available_threads", lambda: 4)
    with threads.threads_over_blocks():
        used = {most: set(threads.map_in_order(thread_after_a_pause, range(8), most)) for most in (0, 1, 2)}
    assert used[0] == used[1] == {get_ident()}
    assert len(used[2]) == 2


def test_few_samples_in_groups_of_folds_use_one_thread(monkeypatch):
    """However many groups there are, because each is too small to justify a thread."""
    table = gaussian(2000, 20)
    folds = (np.arange(2000)[:, None] % 5 != np.arange(5)) / 1600.0
    design = DenseDesign(table.X, table.y, folds, np.ones(5), 3)
    monkeypatch.setattr("annealed.rows.dense.BLOCK", 1)
    rows = SinglePrecisionRows(design, principal_coordinates(design, np.ones(20), 0.0))
    monkeypatch.setattr(threads, "available_threads", lambda: 4)
    with threads.threads_over_blocks():
        few_multiplications = set(rows.map_blocks(thread_after_a_pause))
        monkeypatch.setattr("annealed.rows.base.THREAD", 100.0)
        many_multiplications = set(rows.map_blocks(thread_after_a_pause))
    assert few_multiplications == {get_ident()}
    assert len(many_multiplications) > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fit_in_a_forked_process_does_not_wait_for_its_parents_threads(monkeypatch):
    monkeypatch.setattr(threads, "available_threads", lambda: 2)
    monkeypatch.setattr(DenseDesign, "block_rows", lambda self, n_fits, copies_rows=True: 7)
    expected = fitted_temperature()
    with get_context("fork").Pool(1) as pool:
        assert pool.apply_async(fitted_temperature).get(timeout=60) == expected


class SlowlyComputed:
    """An attribute that another thread computes while the process is forked."""

    def __init__(self, is_begun: Event, may_end: Event):
        self.is_begun, self.may_end = is_begun, may_end

    @cached_property
    def value(self):
        self.is_begun.set()
        return self.may_end.wait(timeout=60)


def value_in_a_forked_process(_):
    done = Event()
    done.set()
    return SlowlyComputed(Event(), done).value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_while_a_thread_computes_an_attribute_can_compute_it():
    """`functools.cached_property` of Python 3.11 would hold a lock for ever in the forked process."""
    is_begun, may_end = Event(), Event()
    worker = Thread(target=lambda: SlowlyComputed(is_begun, may_end).value)
    worker.start()
    assert is_begun.wait(timeout=60)
    try:
        with get_context("fork").Pool(1) as pool:
            assert pool.map_async(value_in_a_forked_process, [0]).get(timeout=60) == [True]
    finally:
        may_end.set()
        worker.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_during_a_fit_uses_all_blas_threads_after_its_own():
    with threadpool_limits(2, user_api="blas"):
        with threads.one_thread(), get_context("fork").Pool(1) as pool:
            during, after = pool.apply_async(blas_threads_during_and_after_a_fit).get(timeout=60)
    assert set(during) == {1}
    assert set(after) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_while_a_thread_sets_the_limit_can_set_it():
    with threads._limit._lock, get_context("fork").Pool(1) as pool:
        during, _ = pool.apply_async(blas_threads_during_and_after_a_fit).get(timeout=60)
    assert set(during) == {1}


def blas_threads_during_and_after_a_fit():
    with threads.one_thread():
        during = blas_threads()
    return during, blas_threads()


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def fitted_temperature():
    table = gaussian()
    return AnnealedLogisticRegression().fit(table.X, table.y).temperature_


def test_an_error_in_the_calling_thread_waits_for_the_others_and_restores_the_context(monkeypatch):
    monkeypatch.setattr(threads, "available_threads", lambda: 2)
    caller, meeting, done = get_ident(), Barrier(2), []

    def work(_):
        meeting.wait(timeout=60)
        if get_ident() == caller:
            raise KeyError("of the caller")
        done.append(True)

    with threads.threads_over_blocks():
        with pytest.raises(KeyError, match="of the caller"):
            list(threads.map_in_order(work, range(2)))
        assert done == [True]
        assert threads._n_threads.get() == 2


def test_yielded_results_are_not_kept(monkeypatch):
    monkeypatch.setattr(threads, "available_threads", lambda: 2)
    alive: WeakSet = WeakSet()

    def work(_):
        sleep(1e-3)
        result = np.zeros(1).view(Tracked)
        alive.add(result)
        return result

    with threads.threads_over_blocks():
        most = max(len(alive) for _ in threads.map_in_order(work, range(300)))
    assert most < 300  # all 300 would be alive if the first were yielded after the last was computed


class Tracked(np.ndarray):
    """An array that a weak set can contain."""

    __hash__ = object.__hash__


def test_users_limit_is_respected():
    with threadpool_limits(1, user_api="blas"):
        assert threads.available_threads() == 1


def test_the_last_of_overlapping_fits_restores_the_blas_limit():
    """In whatever order they overlap: the first to enter need not be the last to leave."""

    def limits():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        first, second = threads.one_thread(), threads.threads_over_blocks()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert limits() == {1}
        second.__exit__(None, None, None)
        assert limits() == {2}


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(DenseDesign, "block_rows", lambda self, n_fits, copies_rows=True: 7)
    table = gaussian()
    paths = []
    for n_threads in (1, 2, 5):
        monkeypatch.setattr(threads, "available_threads", lambda n_threads=n_threads: n_threads)
        paths.append(AnnealedLogisticRegression().fit(table.X, table.y).path_)
    assert paths[0] == paths[1] == paths[2]
    assert np.isfinite(paths[0].coef).all()
