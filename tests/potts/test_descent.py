"""L-BFGS along a path of falling penalties on the distance to the origin of the descent."""

import numpy as np
import pytest

from annealed.potts import refinement
from annealed.potts.refinement import PulledDescent


@pytest.fixture
def bowl():
    """A quadratic loss with eigenvalues from 1 to 100."""
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    hessian, slope = (axes * np.geomspace(1, 100, 8)) @ axes.T, generator.normal(size=8)
    return hessian, slope, lambda x: (slope @ x + 0.5 * x @ hessian @ x, slope + hessian @ x)


def test_every_penalty_has_its_minimum(bowl, monkeypatch):
    monkeypatch.setattr(refinement, "CONVERGED", 1e-14)
    monkeypatch.setattr(refinement, "MOST_STEPS", 200)
    hessian, slope, loss = bowl
    origin = np.linspace(-1, 1, 8)
    pulled = PulledDescent(loss, origin)
    for penalty in (30.0, 3.0, 0.3):
        exact = np.linalg.solve(hessian + penalty * np.eye(8), penalty * origin - slope)
        np.testing.assert_allclose(pulled.minimize(penalty), exact, atol=1e-6)


def test_a_warm_start_needs_half_the_evaluations(bowl):
    _, _, loss = bowl
    evaluated = []

    def counted(x):
        evaluated.append(x)
        return loss(x)

    warm = PulledDescent(counted, np.ones(8))
    warm.minimize(3.0)
    evaluated.clear()
    point = warm.minimize(2.0)
    n_warm = len(evaluated)
    cold = PulledDescent(counted, np.ones(8))
    evaluated.clear()
    cold.minimize(2.0)
    assert n_warm < len(evaluated) / 2
    np.testing.assert_allclose(loss(point)[0], loss(cold.minimize(2.0))[0], rtol=1e-3)


def test_the_value_never_rises_under_negative_curvature():
    def loss(x):
        return float(np.sum(np.cos(3 * x))), -3 * np.sin(3 * x)

    origin = np.linspace(-0.5, 0.7, 5)
    pulled, before = PulledDescent(loss, origin), loss(origin)[0]
    for penalty in (5.0, 0.5, 0.05, 0.0):
        point = pulled.minimize(penalty)
        value = loss(point)[0]
        assert value <= before + 1e-12
        before = value
    assert before < -4.99


def test_no_step_is_taken_from_a_minimum():
    at_minimum = PulledDescent(lambda x: (float(x @ x), 2 * x), np.zeros(3))
    np.testing.assert_array_equal(at_minimum.minimize(1.0), np.zeros(3))


def test_a_nan_loss_shortens_the_step():
    def loss(x):
        inside = float(x[0]) < 0.5
        return (-float(x[0]) if inside else np.nan), np.array([-1.0 if inside else np.nan])

    assert 0.4 < PulledDescent(loss, np.zeros(1)).minimize(1e-3)[0] < 0.5
