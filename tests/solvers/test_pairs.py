"""The memory of L-BFGS against the two-loop recursion, and the secant equation."""

import numpy as np
import pytest

from annealed.solvers.array_pairs import Numbers, Pairs
from annealed.solvers.lbfgs import _Pairs

N_PARAMETERS = 12


def curvature_of_loss(generator):
    root = generator.normal(size=(N_PARAMETERS, N_PARAMETERS))
    return root @ root.T / N_PARAMETERS + np.diag(generator.uniform(0.1, 3, N_PARAMETERS))


def filled(n_fits=3, size=4, n_added=7):
    """A memory of a quadratic loss in which the last fit has fewer pairs, and the pairs of each fit in order."""
    generator = np.random.default_rng(0)
    hessian = curvature_of_loss(generator)
    memory, pairs_of_fits = _Pairs(size, n_fits), [[] for _ in range(n_fits)]
    for number in range(n_added):
        fits = np.arange(n_fits if number < 2 else n_fits - 1)
        steps = generator.normal(size=(len(fits), N_PARAMETERS))
        memory.add(fits, steps, steps @ hessian)
        for fit, step in zip(fits, steps, strict=True):
            pairs_of_fits[fit] = [*pairs_of_fits[fit], (step, hessian @ step)][-size:]
    return memory, pairs_of_fits


def halved(vectors):
    return vectors / 2


def two_loops(pairs, gradient, strength, precondition):
    vector, weights = gradient.copy(), []
    for step, change in reversed(pairs):
        total = change + strength * step
        weights.append(step @ vector / (step @ total))
        vector -= weights[-1] * total
    vector = precondition(vector)
    for (step, change), weight in zip(pairs, reversed(weights), strict=True):
        total = change + strength * step
        vector += (weight - total @ vector / (step @ total)) * step
    return vector


@pytest.mark.parametrize("fits", [np.arange(3), np.array([2]), np.array([0, 2])], ids=str)
@pytest.mark.parametrize(
    "strength", [np.zeros(N_PARAMETERS), np.linspace(0, 1, N_PARAMETERS)], ids=["free", "penalized"]
)
def test_directions_are_those_of_the_two_loop_recursion(fits, strength):
    memory, pairs_of_fits = filled()
    gradient = np.random.default_rng(1).normal(size=(len(fits), N_PARAMETERS))
    directions = memory.apply(fits, gradient, strength, halved)
    for fit, fit_gradient, direction in zip(fits, gradient, directions, strict=True):
        np.testing.assert_allclose(
            direction, two_loops(pairs_of_fits[fit], fit_gradient, strength, halved), rtol=1e-8, atol=1e-10
        )


def test_the_secant_equation_holds_for_the_newest_pair():
    memory, pairs_of_fits = filled()
    strength = np.full(N_PARAMETERS, 0.3)
    newest = [pairs[-1] for pairs in pairs_of_fits]
    changes = np.stack([change + strength * step for step, change in newest])
    directions = memory.apply(np.arange(3), changes, strength, halved)
    np.testing.assert_allclose(directions, np.stack([step for step, _ in newest]), rtol=1e-8, atol=1e-10)


def test_an_empty_memory_applies_the_preconditioner_only():
    gradient = np.random.default_rng(0).normal(size=(2, N_PARAMETERS))
    directions = _Pairs(4, 2).apply(np.arange(2), gradient, np.zeros(N_PARAMETERS), halved)
    np.testing.assert_array_equal(directions, gradient / 2)


def test_weights_on_a_device_are_those_of_the_two_loop_recursion():
    """For each fit, whatever the order of its slots; a fit without pairs keeps its preconditioned gradient."""
    generator = np.random.default_rng(0)
    hessian = curvature_of_loss(generator)
    n_fits, size = 3, 4
    pairs = object.__new__(Pairs)
    pairs.age = np.array([[4, 1, 2, 3], [-1, 0, 1, -1], [-1, -1, -1, -1]])
    steps = generator.normal(size=(n_fits, size, N_PARAMETERS))
    changes, gradient = steps @ hessian, generator.normal(size=(n_fits, 1, N_PARAMETERS))
    eased = np.concatenate([changes, gradient], axis=1) / 50  # so small that the factor on it is one
    turned = np.swapaxes(np.concatenate([changes, gradient], axis=1), 1, 2)
    numbers = Numbers.of(*np.zeros((6, n_fits)), steps @ turned, eased @ turned)
    along, across, factor, slope = pairs.weights([0, 1, 2], numbers)
    np.testing.assert_array_equal(factor, 1)
    for fit in range(n_fits):
        fit_gradient = gradient[fit, 0]
        order = [slot for slot in np.argsort(pairs.age[fit]) if pairs.age[fit, slot] >= 0]
        fit_pairs = [(steps[fit, slot], changes[fit, slot]) for slot in order]
        expected = two_loops(fit_pairs, fit_gradient, 0.0, lambda vector: vector / 50)
        actual = (fit_gradient - across[fit] @ changes[fit]) / 50 + along[fit] @ steps[fit]
        np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(slope[fit], -fit_gradient @ expected, rtol=1e-8)
