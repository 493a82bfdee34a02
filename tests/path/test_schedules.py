"""Schedules: exact temperatures, clear errors, and early stopping of the adaptive one."""

import numpy as np
import pytest

from annealed import AnnealedLDA, AnnealedLogisticRegression, PottsDA
from annealed.path import (
    AdaptiveSchedule,
    CGrid,
    ExponentialSchedule,
    FixedSchedule,
    InverseTemperatureSchedule,
    Schedule,
    UntilSchedule,
    check_temperature,
    make_schedule,
)


def visited(schedule, hot=8.0):
    return list(schedule.temperatures(lambda: hot))


def test_values_of_C_whose_temperatures_overflow_are_refused():
    X, y = np.arange(6.0)[:, None], np.arange(6) % 2
    with pytest.raises(ValueError, match="every temperature of the schedule must be a positive number. Got inf"):
        AnnealedLogisticRegression(schedule=CGrid([5e-324, 1.0]), selection="last").fit(X, y)


def never_hot():
    raise AssertionError("the hot end was computed but is not needed")


# --- temperatures -----------------------------------------------------------------------------------


def test_exponential_multiplies_by_the_rate_down_to_the_stop():
    assert visited(ExponentialSchedule(4.0, cooling_rate=0.5, stop=0.25)) == [4.0, 2.0, 1.0, 0.5, 0.25]


def test_exponential_visits_nothing_below_its_stop():
    assert visited(ExponentialSchedule(4.0, cooling_rate=0.5, stop=0.3)) == [4.0, 2.0, 1.0, 0.5]


def test_exponential_reaches_a_stop_that_rounding_would_miss():
    schedule = ExponentialSchedule(1.0, cooling_rate=0.1, stop=1e-3)
    np.testing.assert_allclose(visited(schedule), [1, 0.1, 0.01, 0.001], rtol=1e-14)


def test_inverse_temperatures_grow_up_to_the_stop():
    schedule = InverseTemperatureSchedule(0.5, growth=2.0, stop=4.0)
    assert list(schedule.temperatures(never_hot)) == [2.0, 1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"growth": 1.0}, "growth must be above 1 so that the temperature falls. Got 1.0."),
        ({"start": 5.0, "stop": 1.0}, "start must not be colder than stop. Got start=5.0, stop=1.0."),
        ({"start": 0}, "start must be a positive number. Got 0."),
    ],
)
def test_inverse_temperatures_refuse_impossible_settings(options, message):
    with pytest.raises(ValueError, match=message):
        list(InverseTemperatureSchedule(**options).temperatures(never_hot))


@pytest.mark.parametrize(
    ("options", "n_steps", "coldest"),
    [
        ({"start": 1e-3, "growth": 10.0, "stop": 1e308}, 312, 1e-308),
        ({"start": 1.0, "growth": 10.0, "stop": 1.7976931348623157e308}, 309, 1e-308),
        ({"start": 1.0, "growth": 1e300, "stop": 1e200}, 1, 1.0),
        ({"start": 1e-300, "growth": 1e200, "stop": 1e200}, 3, 1e-100),
    ],
)
def test_inverse_temperatures_end_before_they_overflow(options, n_steps, coldest):
    temperatures = list(InverseTemperatureSchedule(**options).temperatures(never_hot))
    assert len(temperatures) == n_steps
    assert temperatures[-1] == pytest.approx(coldest)


def test_exponential_takes_its_start_from_the_data():
    assert visited(ExponentialSchedule(cooling_rate=0.5, stop=2.0), hot=8.0) == [8.0, 4.0, 2.0]


def test_exponential_with_a_start_does_not_use_the_data():
    assert list(ExponentialSchedule(1.0, cooling_rate=0.5, stop=0.5).temperatures(never_hot)) == [1.0, 0.5]


def test_exponential_can_be_a_single_temperature():
    assert visited(ExponentialSchedule(1.0, stop=1.0)) == [1.0]


def test_fixed_goes_from_hot_to_cold_without_duplicates():
    assert list(FixedSchedule([0.1, 10, 1.0, 10]).temperatures(never_hot)) == [10.0, 1.0, 0.1]


def test_fixed_treats_temperatures_that_differ_by_rounding_as_one():
    assert visited(FixedSchedule([0.1**3, 1e-3, 1.0])) == [1.0, max(0.1**3, 1e-3)]


def test_fixed_gives_plain_floats():
    assert {type(temperature) for temperature in visited(FixedSchedule(np.float32([1, 2])))} == {float}


def test_adaptive_cools_geometrically_from_the_hot_end():
    schedule = AdaptiveSchedule(n_temperatures=4, cooling_rate=0.5)
    assert visited(schedule, hot=8.0) == [8.0, 4.0, 2.0, 1.0]


@pytest.mark.parametrize("Cs", [[10.0, 0.1, 1.0], (0.1, 1, 10), np.array([1.0, 10.0, 0.1])], ids=type)
def test_values_of_C_become_temperatures_once_the_samples_are_counted(Cs):
    np.testing.assert_allclose(visited(make_schedule(CGrid(Cs), 0.5)), [5.0, 0.5, 0.05])


@pytest.mark.parametrize("n_values", [1, 10, np.int64(3)])
def test_a_number_of_Cs_is_that_many_as_in_scikit_learn(n_values):
    np.testing.assert_array_equal(CGrid(n_values).values(), np.logspace(-4, 4, n_values))


@pytest.mark.parametrize(
    "Cs", [0, -3, True, None, 1.5, "many", [], [1.0, 0.0], [1.0, np.nan], [np.inf], [[1.0]]], ids=str
)
def test_Cs_are_a_whole_number_or_positive_numbers(Cs):
    with pytest.raises(ValueError, match="^Cs must be a whole number"):
        make_schedule(CGrid(Cs), 1.0)


def test_values_of_C_need_a_model_with_an_L2_penalty_on_coefficients():
    with pytest.raises(ValueError, match=r"must be given in temperatures .* C is not defined .* Got CGrid\(Cs=3\)"):
        make_schedule(CGrid(3))
    generator = np.random.RandomState(0)
    with pytest.raises(ValueError, match=r"must be given in temperatures .* C is not defined .* Got CGrid\(Cs=3\)"):
        PottsDA(schedule=CGrid(3)).fit(generator.normal(size=(30, 2)), np.arange(30) % 2)


def test_values_of_C_are_no_temperatures_by_themselves():
    with pytest.raises(TypeError, match=r"only as the `schedule` of an estimator.* Got CGrid\(Cs=3\) elsewhere"):
        visited(CGrid(3))


def test_until_ends_at_its_temperature():
    schedule = UntilSchedule(FixedSchedule([4, 2, 1]), 1.5)
    assert visited(schedule) == [4.0, 2.0, 1.5]


def test_until_does_not_visit_its_temperature_twice():
    assert visited(UntilSchedule(FixedSchedule([4, 2, 1]), 2.0)) == [4.0, 2.0]


def test_until_continues_to_its_temperature_after_the_other_schedule():
    assert visited(UntilSchedule(FixedSchedule([4, 2]), 0.5)) == [4.0, 2.0, 0.5]


def test_until_hotter_than_the_schedule_is_one_temperature():
    assert visited(UntilSchedule(FixedSchedule([4, 2]), 9.0)) == [9.0]


# --- make_schedule ----------------------------------------------------------------------------------


def test_auto_is_adaptive():
    assert isinstance(make_schedule("auto"), AdaptiveSchedule)
    assert make_schedule("auto", cooling_rate=0.4, learns_late=True).learns_late


@pytest.mark.parametrize("temperatures", [[1.0, 0.5], (1.0, 0.5), np.array([1.0, 0.5])])
def test_temperatures_make_a_fixed_schedule(temperatures):
    assert visited(make_schedule(temperatures)) == [1.0, 0.5]


def test_a_schedule_is_kept():
    schedule = ExponentialSchedule()
    assert make_schedule(schedule) is schedule


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -0.5, np.nan, np.inf, True, "hot", None])
def test_temperature_must_be_a_positive_number(value):
    with pytest.raises(ValueError, match=f"temperature must be a positive number. Got {value!r}."):
        check_temperature(value)


@pytest.mark.parametrize("value", [0.0, -2.0, np.nan, np.inf])
def test_fixed_refuses_values_that_are_not_temperatures(value):
    with pytest.raises(
        ValueError, match=f"every temperature of the schedule must be a positive number. Got {value!r}."
    ):
        visited(FixedSchedule([1.0, value]))


def test_fixed_refuses_an_empty_list():
    with pytest.raises(ValueError, match="at least one temperature. Got an empty list."):
        visited(FixedSchedule([]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": -1.0}, "start must be a positive number. Got -1.0."),
        ({"start": 1.0, "stop": 0}, "stop must be a positive number. Got 0."),
        ({"start": 1.0, "cooling_rate": 0}, "cooling_rate must be a positive number. Got 0."),
        ({"start": 1.0, "cooling_rate": 1.0}, "cooling_rate must be below 1 .* Got 1.0."),
        ({"start": 1.0, "cooling_rate": 1.5}, "cooling_rate must be below 1 .* Got 1.5."),
        ({"start": 0.1, "stop": 0.5}, "start must not be colder than stop. Got start=0.1, stop=0.5."),
    ],
)
def test_exponential_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        visited(ExponentialSchedule(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cooling_rate": -0.1}, "cooling_rate must be a positive number. Got -0.1."),
        ({"cooling_rate": 1.0}, "cooling_rate must be below 1 .* Got 1.0."),
        ({"n_temperatures": 0}, "n_temperatures must be .* Got 0."),
        ({"n_temperatures": -3}, "n_temperatures must be .* Got -3."),
    ],
)
def test_adaptive_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        visited(AdaptiveSchedule(**settings))


def test_until_refuses_values_that_are_not_temperatures():
    with pytest.raises(ValueError, match="temperature must be a positive number. Got -1."):
        visited(UntilSchedule(FixedSchedule([1.0]), -1))


@pytest.mark.parametrize("schedule", ["linear", 1.0, [[1.0, 0.5]]])
def test_other_values_than_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match='schedule must be "auto".*Got '):
        make_schedule(schedule)


# --- when to stop -----------------------------------------------------------------------------------


def should_stop(means, noise=0.0):
    """Whether the adaptive schedule stops after these mean scores of five folds."""
    folds = noise * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    scores = [mean + (folds if index % 2 else folds[::-1]) for index, mean in enumerate(means)]
    return stops_after(scores, np.linspace(1, 0.1, len(means)))


def stops_after(scores, values, **settings):
    """Temperatures are a factor of 0.7 apart."""
    return AdaptiveSchedule(**settings).should_stop(0.7 ** np.arange(len(scores)), scores, list(values))


def rising(n):
    return list(np.linspace(-1.0, -0.5, n))


def test_continues_while_validation_improves():
    assert not any(should_stop(rising(30)[:n]) for n in range(1, 31))


def test_stops_when_validation_has_clearly_passed_its_best():
    assert should_stop([*rising(10), *np.linspace(-0.52, -0.9, 8)])


def test_nan_scores_are_neither_the_best_nor_flat():
    assert not should_stop([*rising(10), *[np.nan] * 4])
    assert should_stop([*rising(10), *[np.nan] * 12])  # far past the best


def test_does_not_stop_right_after_the_best():
    assert not should_stop([*rising(20), -0.6, -0.7])


def test_does_not_stop_at_the_first_temperatures_whatever_the_scores():
    assert not any(should_stop(list(np.linspace(-0.1, -1.0, n))) for n in range(1, 12))


def uneven(last, n):
    """Scores below -0.5 that fall and rise, to a last one."""
    return [*([-0.501, -0.51] * 10)[1 - n :], last]


def test_an_uneven_fall_within_the_noise_of_the_folds_does_not_stop_it():
    assert not should_stop([*rising(10), *uneven(-0.51, 9)], noise=0.2)
    assert should_stop([*rising(10), *uneven(-0.51, 9)], noise=0.0)


def test_a_fall_at_every_temperature_stops_it_whatever_the_noise():
    assert should_stop([*rising(10), *np.linspace(-0.501, -0.51, 6)], noise=0.2)
    assert not should_stop([*rising(10), *np.linspace(-0.501, -0.51, 5)], noise=0.2)


@pytest.mark.parametrize(("fall", "stops"), [(0.03, False), (0.07, True)])
def test_a_fall_is_clear_beyond_its_standard_error_over_folds(fall, stops):
    """The falls of the five folds scatter so that their mean has a standard error of 0.05."""
    spread = 0.05 * np.sqrt(5) * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    scores = [np.full(5, mean) for mean in [*rising(10), *uneven(-0.501, 7)]]
    scores.append(-0.5 - fall + spread)
    assert stops_after(scores, np.linspace(1, 0.1, len(scores))) == stops


def test_stops_a_dozen_temperatures_past_the_best_whatever_the_noise():
    assert should_stop([*rising(10), *uneven(-0.51, 12)], noise=0.2)
    assert not should_stop([*rising(10), *uneven(-0.51, 11)], noise=0.2)


def test_a_steep_fall_stops_it_sooner():
    steep = [*rising(12), -0.6, -0.7, -0.8]
    assert should_stop(steep, noise=0.01)
    assert not should_stop(steep, noise=0.5)
    assert not should_stop(steep[:-1], noise=0.01)


@pytest.mark.parametrize(("spread", "stops"), [(0.001, True), (0.03, True), (0.3, False)])
def test_a_round_maximum_is_passed_before_scores_have_fallen_much(spread, stops):
    """Up by 0.1 in three temperatures, then down by 0.001 in three: a parabola predicts a fall of 0.07."""
    falls = 0.001 + spread * np.array([-0.5, -0.25, 0.0, 0.25, 0.5])
    steps = np.arange(-12, 4)
    scores = np.stack([np.interp(steps, [-12, -3, 0, 3], [-0.9, -0.6, -0.5, -0.5 - fall]) for fall in falls], axis=1)
    assert stops_after(list(scores), np.linspace(1, 0.1, len(steps))) == stops
    assert not stops_after(list(scores[:-1]), np.linspace(1, 0.1, len(steps) - 1))


def test_stops_when_validation_no_longer_moves():
    assert should_stop([*rising(10), *[-0.5] * 8])


def test_a_score_in_small_units_does_not_stop_it():
    assert not should_stop(1e-6 * np.array(rising(20)))


@pytest.mark.parametrize(
    ("means", "values", "stops"),
    [
        (np.linspace(-0.69, -0.75, 20), np.linspace(0.69, 0.6, 20), False),  # worse than at the hot end, still fitting
        (np.full(20, -0.69), np.linspace(0.69, 0.6, 20), False),
        (np.linspace(-0.69, -0.75, 20), [*np.linspace(0.69, 0.6, 5), *[0.6] * 15], True),  # nothing left to fit
        (np.full(20, -0.69), np.linspace(0.69, 0.3, 20), True),  # overfitted, and nothing learned
        ([-0.69, *np.linspace(-0.5, -0.6, 19)], np.linspace(0.69, 0.3, 20), True),  # learned, and passed
    ],
    ids=["falling", "flat", "saturated", "overfitted", "passed"],
)
def test_with_learns_late_it_continues_while_scores_do_not_improve(means, values, stops):
    scores = [np.full(5, mean) for mean in means]
    assert stops_after(scores, values, learns_late=True) == stops
    assert stops_after(scores, values)


def test_slow_improvement_does_not_count_as_flat():
    assert not should_stop([*rising(10), *np.linspace(-0.5, -0.499, 8)])


@pytest.mark.parametrize(("cold", "stops"), [(-0.505, False), (-0.52, True)])
def test_with_one_fold_a_fall_of_two_percent_is_clear(cold, stops):
    means = [*rising(10), *uneven(cold, 8)]
    scores = [np.array([mean]) for mean in means]
    assert stops_after(scores, np.linspace(1, 0.1, len(means))) == stops


@pytest.mark.parametrize(("tail", "stops"), [([0.1] * 6, True), (list(np.linspace(0.1, 0.05, 6)), False)])
def test_without_validation_it_stops_at_a_constant_training_loss(tail, stops):
    losses = [*np.linspace(1, 0.2, 10), *tail]
    assert stops_after([None] * len(losses), losses) == stops


@pytest.mark.parametrize(("last", "stops"), [(1.0, True), (0.98, False)])
def test_without_validation_it_stops_at_a_constant_free_energy(last, stops):
    """Distances with hard decisions: Q no longer falls, and Q / T grows without bound."""
    energies = np.r_[np.linspace(200, 1, 10), np.linspace(1, last, 8)]
    assert stops_after([None] * 18, energies / 0.7 ** np.arange(18)) == stops


@pytest.mark.parametrize("schedule", [ExponentialSchedule(), FixedSchedule([1.0])])
def test_other_schedules_do_not_stop_early(schedule):
    assert not schedule.should_stop(0.7 ** np.arange(30), [np.zeros(5)] * 30, [1.0] * 30)


def test_nan_is_not_the_best_score():
    assert should_stop([*rising(10), *[np.nan] * 25])
    assert not should_stop([np.nan] * 8)


# --- user-defined schedules ----------------------------------------------------------------------


class Given(Schedule):
    def __init__(self, values=()):
        self.values = values

    def temperatures(self, hot):
        yield from self.values


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA, PottsDA])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "schedule must give at least one temperature. Got none."),
        ((1.0, -1.0), "every temperature of the schedule must be a positive number. Got -1.0."),
        ((1.0, 2.0), "Temperatures of a schedule must fall. Got 2.0 after 1.0."),
        ((1.0, 1.0), "Temperatures of a schedule must fall. Got 1.0 after 1.0."),
    ],
    ids=["none", "negative", "rising", "equal"],
)
def test_a_user_defined_schedule_is_checked(estimator, values, message):
    generator = np.random.RandomState(0)
    with pytest.raises(ValueError, match=message):
        estimator(schedule=Given(values)).fit(generator.normal(size=(30, 2)), np.arange(30) % 2)


@pytest.mark.parametrize("number", [2.5, "many", None])
def test_the_number_of_temperatures_must_be_whole(number):
    with pytest.raises(ValueError, match=f"n_temperatures must be a whole number of at least 1. Got {number!r}."):
        visited(AdaptiveSchedule(n_temperatures=number))
