"""Unit tests of coordinates, shrinkage, starts, cooling, growth and refinement of prototypes."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf, oas

from annealed.datasets import make_spirals, make_xor_means
from annealed.potts.cooling import Cooling, cool, metric_prior, nearest, shrinkage_share
from annealed.potts.growth import SearchSettings, climb, grown, mean_starts, plus_plus_starts
from annealed.potts.record import PrototypePath
from annealed.potts.refinement import PrototypePosterior, calibrated, loss_and_gradient, refinements
from annealed.potts.rows import Columns, LabelledRows, distinct_rows, principal_rows
from annealed.potts.state import MetricPrior
from annealed.potts.sweep import Multilinear

COOLING = Cooling(tuple(2 / 1.5**step for step in range(20)), coupling=8.0, shrinkage="oas")


def plus_plus_start(*arguments):
    return next(plus_plus_starts(*arguments))


def rows_of(X, y):
    weight = np.ones(len(y))
    return LabelledRows(Columns.of_rows(X, weight).rows(X), y, weight, int(y.max()) + 1)


@pytest.fixture
def strips():
    return rows_of(*make_xor_means(300, random_state=0))


# --- coordinates ------------------------------------------------------------------------------------------


def test_columns_are_standardized_and_converted_back():
    X = np.random.default_rng(0).normal(size=(30, 4)) * [1e-8, 1.0, 1e8, 0.0] + [0.0, 5.0, -3.0, 0.1]
    columns = Columns.of_rows(X, np.ones(30))
    rows = columns.rows(X)
    assert rows.shape == (30, 3)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.std(axis=0), 1)
    np.testing.assert_allclose(columns.points(rows), X)


def test_principal_axes_of_wide_rows_preserve_distances():
    X = np.random.default_rng(1).normal(size=(8, 30))
    columns = Columns.of_rows(X, np.ones(8))
    columns = columns.turned(principal_rows(LabelledRows(columns.rows(X), np.arange(8) % 2, np.ones(8), 2)).axes)
    rows = columns.rows(X)
    assert rows.shape == (8, 7)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(rows @ rows.T, scaled @ scaled.T, atol=1e-10)
    np.testing.assert_allclose(columns.points(rows), X)


def test_distinct_rows_add_weights_in_any_order():
    generator = np.random.default_rng(2)
    X, labels = generator.integers(3, size=(40, 2)).astype(float), generator.integers(2, size=40)
    weight = generator.integers(1, 3, size=40).astype(float)
    order = generator.permutation(40)
    merged = distinct_rows(X, labels, weight)
    for expected, actual in zip(merged, distinct_rows(X[order], labels[order], weight[order]), strict=True):
        np.testing.assert_array_equal(actual, expected)
    pairs = {(*x, label) for x, label in zip(X.tolist(), labels.tolist(), strict=True)}
    assert len(merged[0]) == len(pairs) and merged[2].sum() == weight.sum()


# --- shrinkage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "peer"), [("oas", oas), ("ledoit_wolf", ledoit_wolf)])
def test_shrinkage_of_one_prototype_is_that_of_scikit_learn(name, peer):
    X = np.random.default_rng(3).normal(size=(40, 5)) @ np.diag([1.0, 1.0, 2.0, 3.0, 5.0])
    X -= X.mean(axis=0)
    rows = LabelledRows(X, np.zeros(40, dtype=int), np.ones(40), 1)
    state = plus_plus_start(rows, [1], 0.0, np.random.RandomState(0))
    strength = metric_prior(rows, state, name).strength
    np.testing.assert_allclose(strength / (1 + strength), peer(X, assume_centered=True)[1], rtol=1e-6)


# --- starts, cooling, growth --------------------------------------------------------------------------------


def test_starts_are_different_rows_of_their_class(strips):
    state = plus_plus_start(strips, [3, 2], "oas", np.random.RandomState(0))
    indices = [np.flatnonzero((strips.X == prototype).all(axis=1)) for prototype in state.prototypes]
    assert all(len(index) == 1 for index in indices) and len({int(index[0]) for index in indices}) == 5
    np.testing.assert_array_equal(strips.labels[np.concatenate(indices)], [0, 0, 0, 1, 1])


def test_a_single_prototype_starts_at_the_class_mean(strips):
    state = plus_plus_start(strips, [1, 1], "oas", np.random.RandomState(0))
    np.testing.assert_allclose(state.prototypes[1], strips.X[strips.labels == 1].mean(axis=0), atol=1e-12)


def test_no_more_starts_than_rows():
    rows = rows_of(np.array([[0.0], [0.0], [1.0], [5.0]]), np.array([0, 0, 0, 1]))
    assert len(plus_plus_start(rows, [9, 9], 0.1, np.random.RandomState(0))) == 3


def test_the_start_of_the_slides_has_nearly_equal_labels(strips):
    state = next(mean_starts(strips, 4, "oas", np.random.RandomState(0)))
    assert np.abs(state.prototypes).max() < 0.1 and np.abs(state.labels - 0.5).max() < 0.01


def test_starts_are_compared_at_equal_shrinkage():
    """OAS shrinks nearly spherical scatters by very different amounts."""
    rows = rows_of(*make_spirals(400, random_state=2))
    settings = SearchSettings(COOLING, np.array([10, 10]), None, 4, ("oas",), (), 0)
    generator = np.random.RandomState(settings.seed)
    starts = [plus_plus_start(rows, settings.n_per_class, "oas", generator) for _ in range(settings.n_init)]
    states = [cool(rows, start, COOLING).state for start in starts]
    shares = [shrinkage_share(rows, state, "oas") for state in states]
    assert min(shares) < 0.2 and max(shares) == 1
    unshrunk = MetricPrior(0.0, 1.0)
    values = [Multilinear(rows, 8.0).sweep(state, 0.1, unshrunk).free_energy for state in states]
    (best,) = climb(rows, settings, "oas")
    np.testing.assert_array_equal(best.state.prototypes, states[np.argmin(values)].prototypes)


def test_cooling_hardens_both_spins(strips):
    cooled = cool(strips, plus_plus_start(strips, [2, 2], "oas", np.random.RandomState(1)), COOLING)
    last = cooled.steps[-1]
    assert min(last.membership_saturation, last.label_saturation) > 0.98
    assert cooled.n_dead == cooled.n_duplicate == 0
    temperatures = [step.temperature for step in cooled.steps]
    assert temperatures == sorted(temperatures, reverse=True)


def test_growth_adds_prototypes_at_means_of_misclassified_rows(strips):
    state = cool(strips, plus_plus_start(strips, [1, 1], "oas", np.random.RandomState(0)), COOLING).state
    more = grown(strips, state)
    cell = nearest(strips.X, state)
    for prototype, label in zip(more.prototypes[2:], more.labels[2:].argmax(axis=1), strict=True):
        groups = [
            strips.X[(cell == k) & (strips.labels == label)].mean(axis=0)
            for k in range(2)
            if state.labels[k].argmax() != label
        ]
        assert min(np.abs(prototype - group).max() for group in groups) < 1e-12


def test_no_prototype_is_added_if_no_row_is_wrong():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    rows = rows_of(X, np.array([0, 0, 1, 1]))
    state = plus_plus_start(rows, [1, 1], 0.5, np.random.RandomState(0))
    assert grown(rows, state) is None


# --- refinement ---------------------------------------------------------------------------------------------


def test_refinement_lowers_the_loss_as_the_penalty_falls():
    rows = rows_of(*make_spirals(300, random_state=0))
    state = cool(rows, plus_plus_start(rows, [10, 10], "oas", np.random.RandomState(0)), COOLING).state
    start = calibrated(rows, state, 1.0)
    path = [start, *refinements(rows, start, [1.0, 0.1, 0.01])]
    losses = [-posterior.log_proba(rows.X)[np.arange(len(rows.X)), rows.labels].mean() for posterior in path]
    assert np.diff(losses).max() < 0


def test_a_strong_penalty_keeps_the_annealed_solution(strips):
    state = cool(strips, plus_plus_start(strips, [2, 2], "oas", np.random.RandomState(1)), COOLING).state
    start = calibrated(strips, state, 1.0)
    (refined,) = refinements(strips, start, [1e8])
    for expected, actual in zip(start, refined, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_refined_posterior_has_the_loss_that_was_minimized(strips):
    """The loss is minimized in whitened coordinates, and the posterior is returned in those of the rows."""
    state = cool(strips, plus_plus_start(strips, [2, 2], "oas", np.random.RandomState(1)), COOLING).state
    (refined,) = refinements(strips, calibrated(strips, state, 1.0), [0.05])
    root = np.linalg.cholesky(refined.metric)
    point = PrototypePosterior(refined.prototypes, root, refined.label_logits)
    direct = -refined.log_proba(strips.X)[np.arange(len(strips.X)), strips.labels].mean()
    np.testing.assert_allclose(loss_and_gradient(strips, point)[0], direct)


# --- the record -------------------------------------------------------------------------------------------


def test_records_with_equal_entries_are_equal(strips):
    cooled = cool(strips, plus_plus_start(strips, [2, 2], "oas", np.random.RandomState(1)), COOLING)
    path = PrototypePath.of_rounds([cooled], [0.5])
    assert path == deepcopy(path)
    assert path != replace(path, free_energy=path.free_energy + 1)
    assert path != PrototypePath.of_rounds([cooled, cooled], [0.5])
    assert path != "path"
