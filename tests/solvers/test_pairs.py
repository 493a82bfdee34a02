"""The memory of L-BFGS against the two-loop recursion, and the secant equation."""

import numpy as np
import pytest

from annealed.solvers.array_lbfgs import direction_weights
from annealed.solvers.pairs import Pairs

N_PARAMETERS = 12


def curvature_of_loss(generator):
    root = generator.normal(size=(N_PARAMETERS, N_PARAMETERS))
    return root @ root.T / N_PARAMETERS + np.diag(generator.uniform(0.1, 3, N_PARAMETERS))


def filled(n_fits=3, size=4, n_added=7):
    """A memory of a quadratic loss in which the last fit has fewer pairs, and the pairs of each fit in order."""
    generator = np.random.default_rng(0)
    hessian = curvature_of_loss(generator)
    memory, pairs_of_fits = Pairs(n_fits, size), [[] for _ in range(n_fits)]
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
    directions = Pairs(2, 4).apply(np.arange(2), gradient, np.zeros(N_PARAMETERS), halved)
    np.testing.assert_array_equal(directions, gradient / 2)


def test_weights_on_a_device_are_those_of_the_two_loop_recursion():
    """A fit without pairs keeps its preconditioned gradient."""
    generator = np.random.default_rng(0)
    hessian = curvature_of_loss(generator)
    counts, size = [4, 2, 0], 4
    steps = generator.normal(size=(len(counts), size, N_PARAMETERS))
    for fit, count in enumerate(counts):
        steps[fit, : size - count] = 0
    changes, gradient = steps @ hessian, generator.normal(size=(len(counts), 1, N_PARAMETERS))
    vectors = np.concatenate([changes, gradient], axis=1)
    eased = vectors / 50  # so small that the factor on it is one
    turned = vectors.swapaxes(1, 2)
    on_steps, on_eased, slope = direction_weights(steps @ turned, eased @ turned)
    np.testing.assert_array_equal(on_eased[:, -1], 1)
    for fit, count in enumerate(counts):
        fit_gradient = gradient[fit, 0]
        fit_pairs = [(steps[fit, place], changes[fit, place]) for place in range(size - count, size)]
        expected = two_loops(fit_pairs, fit_gradient, 0.0, lambda vector: vector / 50)
        actual = on_steps[fit] @ steps[fit] + on_eased[fit] @ eased[fit]
        np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(slope[fit], -fit_gradient @ expected, rtol=1e-8)
