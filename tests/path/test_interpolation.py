"""Interpolation in log temperature: exact for polynomials, and linear across wide gaps."""

import numpy as np
import pytest

from annealed.path.prediction import N_POINTS, REACH, between, hermite, lagrange

FINE = 4.0 * 0.7 ** np.arange(12)
PLACES = [1.3, 0.7, -0.2, -1.0, -2.5, -2.6]


@pytest.mark.parametrize("target", [1.3, 0.9, -1.1, -2.55, -4.0])
@pytest.mark.parametrize("n_places", range(1, 7))
def test_lagrange_weights_reproduce_polynomials(n_places, target):
    places = np.array(PLACES[:n_places])
    polynomial = np.polynomial.Polynomial(np.linspace(1, 2, n_places))
    actual = lagrange(places, target) @ polynomial(places)
    np.testing.assert_allclose(actual, polynomial(target), rtol=1e-9)


def test_lagrange_weights_are_exact_up_to_their_degree_only():
    places = np.array(PLACES[:3])
    assert abs(lagrange(places, 0.0) @ places**3) > 0.1


@pytest.mark.parametrize("place", range(6))
def test_lagrange_weights_at_a_place_are_one_and_zeros(place):
    np.testing.assert_array_equal(lagrange(np.array(PLACES), PLACES[place]), np.eye(6)[place])


@pytest.mark.parametrize("target", [1.3, 0.9, -1.1, -4.0])
@pytest.mark.parametrize("n_places", [1, 2])
def test_hermite_weights_reproduce_polynomials_from_values_and_slopes(n_places, target):
    places = PLACES[:n_places]
    polynomial = np.polynomial.Polynomial(np.linspace(1, 2, 2 * n_places))
    values, slopes = hermite(places, target)
    actual = values @ polynomial(np.array(places)) + slopes @ polynomial.deriv()(np.array(places))
    np.testing.assert_allclose(actual, polynomial(target), rtol=1e-12)


@pytest.mark.parametrize("temperature", [3.9, 1.0, 0.3, 0.08])
def test_between_close_temperatures_is_the_polynomial_through_n_points(temperature):
    polynomial = np.polynomial.Polynomial(np.linspace(1, 2, N_POINTS))
    weights, window = between(FINE, temperature)
    assert len(weights) == N_POINTS
    actual = weights @ polynomial(np.log(FINE[window]))
    np.testing.assert_allclose(actual, polynomial(np.log(temperature)), rtol=1e-9)


def test_a_window_inside_has_as_many_points_on_either_side():
    _, window = between(FINE, np.sqrt(FINE[5] * FINE[6]))
    assert window == slice(3, 9)


@pytest.mark.parametrize(
    ("temperature", "expected"), [(3.9, slice(0, 6)), (FINE[0], slice(0, 6)), (FINE[-1] * 1.01, slice(6, 12))]
)
def test_a_window_at_an_end_is_one_sided(temperature, expected):
    _, window = between(FINE, temperature)
    assert window == expected


@pytest.mark.parametrize("ladder", [FINE, FINE[:1], FINE[:2], FINE[:3], [100.0, 1.0, 0.9, 0.01]], ids=len)
def test_at_a_known_temperature_its_weight_is_one_and_all_others_are_zero(ladder):
    for index, temperature in enumerate(ladder):
        weights, window = between(ladder, temperature)
        expected = np.zeros(len(ladder))
        expected[index] = 1
        np.testing.assert_array_equal(weights, expected[window])


@pytest.mark.parametrize(
    ("ladder", "temperature", "around"),
    [
        ([100.0, 10.0, 1.0, 0.1, 0.01], 3.0, [10.0, 1.0]),
        ([100.0, 1.0, 0.9, 0.8, 0.7], 20.0, [100.0, 1.0]),
        ([100.0, 1.0, 0.9, 0.8, 0.7], 0.85, [0.9, 0.8]),
        ([10.0, 9.0, 8.0, 7.0, 0.01], 0.02, [7.0, 0.01]),
    ],
)
def test_between_distant_temperatures_is_a_straight_line(ladder, temperature, around):
    weights, window = between(ladder, temperature)
    assert ladder[window] == around
    assert weights.min() > 0
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(weights @ np.log(around), np.log(temperature), rtol=1e-12)


@pytest.mark.parametrize(("step", "n_points"), [(0.99 * REACH, 6), (1.01 * REACH, 2)])
def test_the_width_of_a_gap_is_measured_in_log_temperature(step, n_points):
    ladder = np.exp(-step * np.arange(8))
    weights, _ = between(ladder, np.sqrt(ladder[3] * ladder[4]))
    assert len(weights) == n_points


def test_a_wide_gap_beyond_the_window_does_not_matter():
    ladder = np.append(FINE, FINE[-1] / 100)
    weights, window = between(ladder, np.sqrt(FINE[4] * FINE[5]))
    assert len(weights) == N_POINTS
    assert window == slice(2, 8)


@pytest.mark.parametrize("temperature", [0.9 * FINE[4], FINE[5], 1.001 * FINE[5]])
def test_only_one_of_two_nearly_equal_points_is_used(temperature):
    """Their difference is mostly error, which division by their tiny distance would amplify."""
    ladder = np.sort(np.append(FINE, FINE[5] * (1 - 1e-6)))[::-1]
    weights, window = between(ladder, temperature)
    assert np.abs(weights).max() <= 1.5
    assert (weights != 0).sum() < len(weights)
    places = np.log(ladder[window])
    np.testing.assert_allclose(weights @ places**3, np.log(temperature) ** 3, rtol=1e-9)
