"""The Gibbs posterior (7), the free energy (9) and theorem 1."""

import numpy as np
import oracles
import pytest

from annealed.problems import gibbs

TEMPERATURES = [100.0, 1.0, 0.1, 0.003]


@pytest.fixture
def scores():
    return np.random.default_rng(0).normal(size=(12, 4))


@pytest.fixture
def labels():
    return np.arange(12) % 4


def free_energy(scores, labels, temperature):
    """Q of (9) as the package computes it: the temperature times the mean negative log-likelihood."""
    return temperature * gibbs.negative_log_likelihood(scores / temperature, labels).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_posterior_is_equation_7(scores, temperature):
    expected = oracles.exact_posterior(scores, temperature)
    np.testing.assert_allclose(gibbs.posterior(scores / temperature), expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_fast_oracle_agrees_with_the_exact_one(scores, temperature):
    expected = oracles.exact_posterior(scores, temperature)
    np.testing.assert_allclose(oracles.posterior(scores, temperature), expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_log_posterior_is_the_logarithm_of_equation_7(scores, temperature):
    log_posterior = gibbs.log_posterior(scores / temperature)
    expected = oracles.exact_posterior(scores, temperature)
    np.testing.assert_allclose(np.exp(log_posterior), expected, rtol=1e-12, atol=1e-300)


def test_log_posterior_is_finite_where_the_posterior_underflows():
    log_posterior = gibbs.log_posterior(np.array([[0.0, -5000.0]]))
    np.testing.assert_array_equal(log_posterior, [[0.0, -5000.0]])


@pytest.mark.parametrize("shift", [-1e6, 1e6])
def test_a_score_shared_by_all_classes_changes_nothing(scores, shift):
    np.testing.assert_allclose(gibbs.posterior(scores + shift), gibbs.posterior(scores), rtol=1e-9)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_free_energy_is_temperature_times_mean_negative_log_likelihood(scores, labels, temperature):
    expected = oracles.free_energy(scores, labels, temperature)
    np.testing.assert_allclose(free_energy(scores, labels, temperature), expected, rtol=1e-12)
    likelihood = oracles.mean_negative_log_likelihood(scores, labels, temperature)
    np.testing.assert_allclose(temperature * likelihood, expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_entropy_is_that_of_equation_7(scores, temperature):
    expected = oracles.mean_entropy(scores, temperature)
    np.testing.assert_allclose(gibbs.entropy(scores / temperature).mean(), expected, rtol=1e-10)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_slope_of_free_energy_in_temperature_is_mean_entropy(scores, labels, temperature):
    def at(other):
        return free_energy(scores, labels, other)

    slope = oracles.slope(at, np.array(temperature), step=1e-4 * temperature)
    np.testing.assert_allclose(slope, gibbs.entropy(scores / temperature).mean(), rtol=1e-7, atol=1e-9)


# --- theorem 1 --------------------------------------------------------------------------------------


def test_infinite_temperature_is_uniform(scores):
    np.testing.assert_allclose(gibbs.posterior(scores / 1e9), 0.25, atol=1e-8)


def test_zero_temperature_is_the_hard_rule(scores):
    hard = np.eye(4)[scores.argmax(axis=1)]
    np.testing.assert_allclose(gibbs.posterior(scores / 1e-5), hard, atol=1e-12)


def test_zero_temperature_free_energy_is_equation_3(scores, labels):
    expected = oracles.zero_temperature_energy(scores, labels)
    np.testing.assert_allclose(free_energy(scores, labels, 1e-6), expected, rtol=1e-9)


def test_free_energy_falls_with_temperature(scores, labels):
    ladder = np.geomspace(1e3, 1e-2, 60)
    energies = [free_energy(scores, labels, temperature) for temperature in ladder]
    assert np.diff(energies).max() < 0


# --- loss and residual of a pass --------------------------------------------------------------------


def test_loss_and_residual_are_those_of_equations_9_and_15(scores, labels):
    logits = np.stack([scores, 3 * scores], axis=1)
    loss, residual = gibbs.loss_and_residual(logits.copy(), labels)
    for fit in range(2):
        posterior = oracles.exact_posterior(logits[:, fit], 1.0)
        np.testing.assert_allclose(residual[:, fit], posterior - np.eye(4)[labels], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(loss[:, fit], -np.log(posterior[np.arange(12), labels]), rtol=1e-12)
    np.testing.assert_allclose(gibbs.negative_log_likelihood(logits, labels), loss, rtol=1e-12)


def test_loss_and_residual_of_two_classes_are_those_of_three_with_an_impossible_one(scores, labels):
    both, is_second = np.stack([scores[:, :2], -5 * scores[:, :2]], axis=1), labels % 2
    without = np.full((*both.shape[:2], 1), -1e4)
    loss, residual = gibbs.loss_and_residual(both.copy(), is_second)
    expected_loss, expected = gibbs.loss_and_residual(np.concatenate([both, without], axis=2), is_second)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-13)
    np.testing.assert_allclose(residual, expected[..., :2], rtol=1e-13)


@pytest.mark.parametrize("others", [(0.0, -1.0), (0.0,)])
def test_loss_and_residual_keep_their_digits_on_certain_rows(others):
    margin = 60.0
    loss, residual = gibbs.loss_and_residual(np.array([[[margin, *others]]]), np.array([0]))
    expected = np.exp(-margin) * np.exp(others).sum()
    np.testing.assert_allclose(loss[0, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(residual[0, 0, 0], -expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_and_residual_stay_finite_on_rows_that_are_certainly_wrong(dtype):
    loss, residual = gibbs.loss_and_residual(np.array([[[0.0, 4000.0]]], dtype), np.array([0]))
    np.testing.assert_array_equal(loss, [[4000.0]])
    np.testing.assert_array_equal(residual, [[[-1.0, 1.0]]])


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_residual_is_subnormal(dtype, n_classes):
    """Sums of subnormal numbers take many times as long."""
    tiny = float(np.finfo(dtype).tiny)
    logits, labels = np.zeros((60, 1, n_classes)), np.zeros(60, dtype=int)
    logits[:, 0, 1:] = np.log(tiny) * np.linspace(1.15, 0, 60)[:, None]
    loss, residual = gibbs.loss_and_residual(logits.astype(dtype), labels)
    assert (np.abs(residual) > tiny).all()
    np.testing.assert_allclose(loss[:, 0], gibbs.negative_log_likelihood(logits[:, 0], labels), atol=1e-7)


def test_class_variance_follows_from_the_residual(scores, labels):
    weight = np.random.default_rng(1).uniform(size=(12, 1))
    _, residual = gibbs.loss_and_residual(scores[:, None].copy(), labels)
    posterior = oracles.exact_posterior(scores, 1.0)
    expected = np.sum(weight * posterior * (1 - posterior), axis=0)
    np.testing.assert_allclose(gibbs.class_variance(residual[:, 0], weight[:, 0]), expected, rtol=1e-12)
