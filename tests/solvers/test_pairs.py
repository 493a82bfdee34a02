"""The memory of L-BFGS against the two-loop recursion, and the secant equation."""

import numpy as np
import pytest

from annealed.arrays import Place, to_host
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
        added(memory, fits, steps, steps @ hessian)
        for fit, step in zip(fits, steps, strict=True):
            pairs_of_fits[fit] = [*pairs_of_fits[fit], (step, hessian @ step)][-size:]
    return memory, pairs_of_fits


def added(memory, fits, steps, changes, ratio=()):
    products = [np.einsum("sp,sp->s", *pair) for pair in ((steps, changes), (steps, steps), (changes, changes))]
    memory.add(fits, steps, changes, [*products, *ratio], np.ones(len(fits), dtype=bool))


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
    directions, products = memory.apply(fits, gradient, strength, halved)
    np.testing.assert_allclose(products, np.einsum("sp,sp->s", directions, gradient), rtol=1e-10)
    for fit, fit_gradient, direction in zip(fits, gradient, directions, strict=True):
        np.testing.assert_allclose(
            direction, two_loops(pairs_of_fits[fit], fit_gradient, strength, halved), rtol=1e-8, atol=1e-10
        )


def test_the_secant_equation_holds_for_the_newest_pair():
    memory, pairs_of_fits = filled()
    strength = np.full(N_PARAMETERS, 0.3)
    newest = [pairs[-1] for pairs in pairs_of_fits]
    changes = np.stack([change + strength * step for step, change in newest])
    directions, _ = memory.apply(np.arange(3), changes, strength, halved)
    np.testing.assert_allclose(directions, np.stack([step for step, _ in newest]), rtol=1e-8, atol=1e-10)


def test_an_empty_memory_applies_the_preconditioner_only():
    gradient = np.random.default_rng(0).normal(size=(2, N_PARAMETERS))
    directions, _ = Pairs(2, 4).apply(np.arange(2), gradient, np.zeros(N_PARAMETERS), halved)
    np.testing.assert_array_equal(directions, gradient / 2)


def test_the_factor_is_the_median_ratio_of_the_latest_pairs():
    memory, generator = Pairs(2, 3), np.random.default_rng(0)
    for ratio in (0.9, 0.2, 0.3, 0.4):
        steps = generator.normal(size=(1, N_PARAMETERS))
        added(memory, np.array([1]), steps, steps, [np.array([ratio]), np.ones(1)])
    np.testing.assert_allclose(memory.factor(np.arange(2)), [1.0, 0.3])


def test_pairs_on_a_device_equal_those_of_numpy(move):
    """Fits that are not consecutive, and a buffer that is full for some of them."""
    place = Place.of(move(np.zeros(1)))
    plain, moved, generator = Pairs(3, 4), Pairs(3, 4, place), np.random.default_rng(0)
    hessian = curvature_of_loss(generator)
    for number in range(6):
        fits = np.array([0, 2]) if number % 2 else np.arange(3)
        steps = generator.normal(size=(len(fits), N_PARAMETERS))
        added(plain, fits, steps, steps @ hessian)
        products = [np.einsum("sp,sp->s", steps, steps @ hessian), np.ones(len(fits)), np.ones(len(fits))]
        moved.add(fits, place.wide(steps), place.wide(steps @ hessian), products, np.ones(len(fits), dtype=bool))
    gradient, strength = generator.normal(size=(2, N_PARAMETERS)), np.full(N_PARAMETERS, 0.1)
    expected, _ = plain.apply(np.array([0, 2]), gradient, strength, halved)
    found, _ = moved.apply(np.array([0, 2]), place.wide(gradient), place.wide(strength), halved)
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-9, atol=1e-12)
