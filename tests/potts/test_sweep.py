"""The Potts free energy: every block update is a minimizer, by finite differences and because Psi never rises."""

from dataclasses import replace

import numpy as np
import pytest

from annealed.potts.rows import LabelledRows
from annealed.potts.state import MetricPrior, PottsState, shrunk_inverse, symmetric_eigen
from annealed.potts.sweep import Multilinear, Quadratic, entropy, free_energy, moved, updated_labels

COUPLING = 1.3
NO_PRIOR = MetricPrior(0.0, 1.0)
PRIORS = [NO_PRIOR, MetricPrior(0.4, 0.7)]


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 3)) + 2 * generator.integers(3, size=(40, 1))
    return LabelledRows(X - X.mean(axis=0), generator.integers(3, size=40), generator.uniform(0.5, 2.0, 40), 3)


@pytest.fixture
def state(rows):
    generator = np.random.default_rng(1)
    root = generator.normal(size=(3, 3))
    metric = root @ root.T + 0.1 * np.eye(3)
    labels = generator.dirichlet(np.ones(3), size=4)
    return PottsState(generator.normal(size=(4, 3)), labels, metric, np.linalg.slogdet(metric)[1], np.eye(3))


def memberships_of(rows, state, temperature):
    """The membership block row by row, as a reference: a slow and obvious softmax."""
    spins = np.empty((len(rows.X), len(state)))
    for row, (x, label) in enumerate(zip(rows.X, rows.labels, strict=True)):
        offset = x - state.prototypes
        field = -0.5 * np.einsum("kd,de,ke->k", offset, state.metric, offset) + COUPLING * state.labels[:, label]
        weights = np.exp((field - field.max()) / temperature)
        spins[row] = weights / weights.sum()
    return spins


def multilinear_error(rows, memberships, labels):
    """E2, the expected weight of rows whose prototype has another label."""
    return float(rows.weight @ (1 - np.sum(memberships * labels.T[rows.labels], axis=1)))


def psi_of(rows, state, memberships, temperature, prior):
    error = COUPLING * multilinear_error(rows, memberships, state.labels)
    return free_energy(rows, state, memberships, temperature, prior, error)


def slope(value, place, direction, step=1e-5):
    return (value(place + step * direction) - value(place - step * direction)) / (2 * step)


def zero_sum(generator, shape):
    """A random direction that preserves the row sums of spins."""
    direction = generator.normal(size=shape)
    return direction - direction.mean(axis=1, keepdims=True)


# --- every block is a stationary point of the free energy -----------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("prior", PRIORS, ids=["no prior", "prior"])
def test_the_gradient_of_each_block_vanishes_at_its_update(rows, state, temperature, prior):
    generator = np.random.default_rng(2)
    spins = memberships_of(rows, state, temperature)

    def psi(memberships=spins, **changes):
        return psi_of(rows, replace(state, **changes), memberships, temperature, prior)

    def with_metric(metric):
        return psi(prototypes=new.prototypes, metric=metric, log_det=np.linalg.slogdet(metric)[1])

    sums = rows.sums(state, 1 / temperature, COUPLING)
    labels = updated_labels(sums.class_counts, 1 / temperature, COUPLING)
    new = moved(rows, state, labels, sums, prior)
    for _ in range(5):
        across = generator.normal(size=(3, 3))
        slopes = [
            slope(lambda place: psi(place), spins, 0.01 * spins.min() * zero_sum(generator, spins.shape)),
            slope(lambda place: psi(labels=place), labels, labels.min() * zero_sum(generator, labels.shape)),
            slope(lambda place: psi(prototypes=place), new.prototypes, generator.normal(size=new.prototypes.shape)),
            slope(with_metric, new.metric, 0.1 * (across + across.T)),
        ]
        assert np.abs(slopes).max() < 1e-6 * rows.total


def test_block_updates_are_minima_and_not_other_stationary_points(rows, state):
    spins = memberships_of(rows, state, 1.0)
    sums = rows.sums(state, 1.0, COUPLING)
    best = psi_of(rows, state, spins, 1.0, NO_PRIOR)
    other = np.random.default_rng(3).dirichlet(np.ones(len(state)), size=len(rows.X))
    assert best < psi_of(rows, state, 0.9 * spins + 0.1 * other, 1.0, NO_PRIOR)
    nearer = replace(state, prototypes=moved(rows, state, state.labels, sums, NO_PRIOR).prototypes)
    assert psi_of(rows, nearer, spins, 1.0, NO_PRIOR) < best


def test_a_pass_returns_the_sums_over_memberships(rows, state):
    spins = memberships_of(rows, state, 0.7)
    sums = rows.sums(state, 1 / 0.7, COUPLING)
    weighted = spins * rows.weight[:, None]
    np.testing.assert_allclose(sums.class_counts, weighted.T @ np.eye(3)[rows.labels], rtol=1e-10)
    np.testing.assert_allclose(sums.rows, weighted.T @ rows.X, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sums.squares, rows.weight @ (spins**2).sum(axis=1), rtol=1e-10)


def test_a_pass_does_not_depend_on_the_blocks(rows, state, monkeypatch):
    whole = rows.sums(state, 1.0, COUPLING)
    monkeypatch.setattr("annealed.potts.rows.BLOCK_BYTES", 1)
    many = LabelledRows(np.tile(rows.X, (4, 1)), np.tile(rows.labels, 4), np.tile(rows.weight / 4, 4), 3)
    assert len(many.blocks(len(state))) > 2
    for expected, actual in zip(whole, many.sums(state, 1.0, COUPLING), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_strong_coupling_does_not_round_off_distances(rows, state, dtype):
    """With hard labels and a coupling of some hundreds or more, a still larger coupling changes nothing."""
    hard = replace(state, labels=np.eye(3)[[0, 0, 1, 2]])
    narrow = LabelledRows(rows.X.astype(dtype), rows.labels, rows.weight, 3)
    strong, stronger = (Multilinear(narrow, coupling).sweep(hard, 0.7, NO_PRIOR) for coupling in (1e3, 1e20))
    assert stronger.free_energy == strong.free_energy
    np.testing.assert_array_equal(stronger.state.prototypes, strong.state.prototypes)


# --- the free energy never rises ----------------------------------------------------------------------------


@pytest.mark.parametrize("relaxation", [Multilinear, Quadratic])
@pytest.mark.parametrize("prior", PRIORS, ids=["no prior", "prior"])
def test_the_free_energy_never_rises_at_a_fixed_temperature(rows, state, relaxation, prior):
    worst = -np.inf
    for temperature in (3.0, 1.0, 0.3, 0.05):
        sweeper, current, values = relaxation(rows, COUPLING), state, []
        for _ in range(15):
            swept = sweeper.sweep(current, temperature, prior)
            current = swept.state
            values.append(swept.free_energy)
        worst = max(worst, np.diff(values).max())
    assert worst <= 1e-9 * rows.total


def test_a_sweep_reports_the_free_energy_of_its_definition(rows, state):
    spins = memberships_of(rows, state, 0.7)
    swept = Multilinear(rows, COUPLING).sweep(state, 0.7, PRIORS[1])
    direct = psi_of(rows, state, spins, 0.7, PRIORS[1])
    np.testing.assert_allclose(swept.free_energy, direct, rtol=1e-10)


def test_the_quadratic_fields_are_negative_gradients_of_its_energy(rows, state):
    generator = np.random.default_rng(5)
    spins = generator.dirichlet(np.ones(len(state)), size=len(rows.X))
    sweeper = Quadratic(rows, COUPLING)

    def energy(memberships=spins, labels=state.labels):
        new = replace(state, labels=labels)
        with_entropy = free_energy(rows, new, memberships, 1.0, NO_PRIOR, sweeper.error(memberships, labels))
        return with_entropy + entropy(memberships, rows.weight) + entropy(labels)

    for _ in range(5):
        direction = zero_sum(generator, spins.shape)
        field = rows.weight[:, None] * sweeper.membership_field(state, spins)
        np.testing.assert_allclose(slope(energy, spins, direction), -np.sum(field * direction), rtol=1e-5)
        direction = zero_sum(generator, state.labels.shape)
        along = slope(lambda labels: energy(labels=labels), state.labels, direction)
        np.testing.assert_allclose(along, -np.sum(sweeper.label_field(state, spins) * direction), rtol=1e-5)


# --- energies and limits --------------------------------------------------------------------------------------


def test_three_energies_are_equal_for_hard_spins(rows):
    """The multilinear error, the slides' quadratic error, and the total weight of misclassified rows."""
    generator = np.random.default_rng(4)
    cell, owner = generator.integers(5, size=len(rows.X)), generator.integers(3, size=5)
    spins, labels = np.eye(5)[cell], np.eye(3)[owner]
    wrong = rows.weight[owner[cell] != rows.labels].sum()
    np.testing.assert_allclose(multilinear_error(rows, spins, labels), wrong)
    np.testing.assert_allclose(Quadratic(rows, 1.0).error(spins, labels), wrong)


def test_a_prior_shrinks_the_scatter():
    scatter = np.diag([4.0, 1.0, 0.25])
    metric, log_det = shrunk_inverse(scatter, 1 / 3, 2.0, 0.0)
    np.testing.assert_allclose(np.linalg.inv(metric), 0.75 * scatter + 0.25 * 2.0 * np.eye(3))
    np.testing.assert_allclose(log_det, np.linalg.slogdet(metric)[1])


def test_eigenvalues_are_found_if_divide_and_conquer_fails(monkeypatch):
    def fail(matrix):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    matrix = np.array([[2.0, 1.0], [1.0, 2.0]])
    monkeypatch.setattr(np.linalg, "eigh", fail)
    values, vectors = symmetric_eigen(matrix)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix)
    np.testing.assert_allclose(values, [1.0, 3.0])


def test_an_empty_prototype_keeps_its_position(rows, state):
    far = replace(state, prototypes=np.vstack([state.prototypes[:3], [[1e3, 1e3, 1e3]]]))
    swept = Multilinear(rows, COUPLING).sweep(far, 0.1, NO_PRIOR)
    np.testing.assert_array_equal(swept.state.prototypes[3], far.prototypes[3])
    assert np.isfinite(swept.state.metric).all() and swept.counts[3] < 1e-6


def test_the_metric_above_the_floor_is_the_inverse():
    generator = np.random.RandomState(0)
    root = generator.standard_normal((6, 4))  # a singular scatter, which the prior makes invertible
    prior, smallest = MetricPrior(0.1, 0.7), 1e-10
    shrunk = (root @ root.T + 0.1 * prior.variance * np.eye(6)) / 1.1
    for metric, log_det in (shrunk_inverse(root @ root.T, *prior, floor) for floor in (smallest, 0.046)):
        np.testing.assert_allclose(metric, np.linalg.inv(shrunk), rtol=1e-9)
        np.testing.assert_allclose(log_det, -np.linalg.slogdet(shrunk)[1], rtol=1e-12)


def test_a_negative_eigenvalue_of_a_scatter_is_raised_to_the_floor():
    scatter, prior = np.diag([1.0, -0.2]), MetricPrior(0.1, 1.0)
    metric, log_det = shrunk_inverse(scatter, *prior, 1e-6)
    np.testing.assert_allclose(np.diag(metric), [1.0, 1e6])
    np.testing.assert_allclose(log_det, np.log(1e6))
