"""The nodes of a walk and what is filled between them: in which order, from which points, and how well."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracles
import pytest
from problems import (
    Radial,
    badly_scaled,
    categories,
    fold_masks,
    gaussian,
    heavy_tailed,
    separable,
    stack_of,
    text,
    two_classes,
    wide,
)
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from annealed import AnnealedClassifier, AnnealedLogisticRegression
from annealed.objectives import Distance, InnerProduct
from annealed.schedules import AdaptiveSchedule
from annealed.selection import NoValidation
from annealed.solvers import LBFGS, Newton
from annealed.solvers.newton import GROUP_SIZE
from annealed.walk import Step, Validation, anneal
from annealed.walk.cooling import REACH, _Walk
from annealed.walk.ending import _should_stop
from annealed.walk.prediction import predicted
from benchmarks.quality import PenalizedLikelihood

LADDER = 4.0 * 0.7 ** np.arange(12)
FAR, NEAR = 0.9, 0.3  # of log temperature, between nodes


class FewFits:
    """As much of a problem as a walk needs to be made."""

    n_fits = 3
    extrapolates = temperature_free = True
    visits_all = False

    def carry(self, parameters, temperature, new_temperature):
        return parameters


def course(place):
    """Parameters (n_fits, 2) on a curve that no polynomial of few nodes follows."""
    return np.exp(np.multiply.outer([2.0, 1.5, 1.0], [place, -place]))


def step(place, is_node=True, n_iter=1, n_fits=3):
    return Step(np.exp(place), 1.0, 0.0, n_iter, True, is_node, Validation(), course(place)[:n_fits], 0.0)


def walk_of(spacing, n_nodes=8):
    walk = _Walk(FewFits(), LBFGS(), None, fills_gaps=True, options={})
    walk.nodes = [step(-spacing * number) for number in range(n_nodes)]
    return walk


def waiting(*places):
    return [float(np.exp(place)) for place in places]


def with_tangent(place):
    return replace(step(place), tangent=course(place) * np.multiply.outer([2.0, 1.5, 1.0], [1, -1]))


def worst_prediction(nodes, place):
    """The largest relative error of what is predicted for a place."""
    return np.abs(predicted(FewFits(), nodes, np.exp(place)) / course(place) - 1).max()


@pytest.mark.parametrize("n_nodes", [1, 2, 5])
def test_tangents_predict_better_than_points_alone(n_nodes):
    places = -0.3 * np.arange(n_nodes)
    by_points = worst_prediction([step(own) for own in places], places[-1] - 0.3)
    assert worst_prediction([with_tangent(own) for own in places], places[-1] - 0.3) < 0.5 * by_points


def test_tangents_of_nodes_that_lie_close_do_not_swing_far_away():
    near = [with_tangent(own) for own in (0.0, -1e-3)]
    alone = [with_tangent(-1e-3)]
    np.testing.assert_array_equal(*(predicted(FewFits(), nodes, np.exp(-0.5)) for nodes in (near, alone)))


def test_a_tangent_predicts_alone_where_the_node_before_has_none():
    nodes = [step(0.0), with_tangent(-NEAR)]
    target = -2 * NEAR
    expected = nodes[1].parameters - NEAR * nodes[1].tangent
    np.testing.assert_allclose(predicted(FewFits(), nodes, np.exp(target)), expected, rtol=1e-12)


def test_far_away_the_last_point_is_taken_rather_than_its_tangent():
    nodes = [with_tangent(own) for own in (0.0, -0.5)]
    np.testing.assert_array_equal(predicted(FewFits(), nodes, np.exp(-5.0)), nodes[-1].parameters)


def test_the_middle_of_each_gap_is_filled_before_what_lies_beside_it():
    places = [-0.2, -0.44, -0.7, -1.1, -1.36, -1.6]
    middles, rest = walk_of(FAR)._waves(waiting(*places))
    assert middles == pytest.approx(np.exp([-0.44, -1.36]))
    assert sorted([*middles, *rest]) == sorted(waiting(*places))
    assert walk_of(FAR)._waves([]) == ([], [])


def test_the_final_fit_is_interpolated_from_fillings_too_and_the_folds_from_nodes():
    place = -3 * FAR - 0.2
    (without,) = walk_of(FAR)._between([np.exp(place)])
    walk = walk_of(FAR)
    walk.fillings = [step(-3 * FAR - 0.45, is_node=False, n_fits=1), step(-2 * FAR - 0.45, is_node=False, n_fits=1)]
    (point,) = walk._between([np.exp(place)])
    np.testing.assert_array_equal(point[1:], without[1:])
    assert np.abs(point[0] - course(place)[0]).max() < 0.2 * np.abs(without[0] - course(place)[0]).max()


def test_a_filling_that_was_certified_as_it_lay_adds_no_point():
    walk = walk_of(NEAR)
    (without,) = walk._between([np.exp(-0.7)])
    walk.fillings = [step(-0.75, is_node=False, n_iter=0, n_fits=1)]
    np.testing.assert_array_equal(walk._between([np.exp(-0.7)]), [without])


class StopsPastItsBest:
    def should_stop(self, temperatures, validation, value):
        means = [scores.mean() for scores in validation]
        return max(means) > means[-1]


@pytest.mark.parametrize(
    ("scores", "penalty", "stops"),
    [((-3, -2, -1), (0, 0, 0), False), ((-3, -1, -2), (0, 0, 9), True), ((-3, -2, -1), (0, 0, 2), True)],
    ids=["neither", "scores", "what they are compared by"],
)
def test_a_walk_ends_past_the_best_of_scores_or_of_what_temperatures_are_compared_by(scores, penalty, stops):
    nodes = [
        replace(step(-number), validation=Validation(np.full(5, float(score)), penalty=float(owed)))
        for number, (score, owed) in enumerate(zip(scores, penalty, strict=True))
    ]
    assert _should_stop(StopsPastItsBest(), nodes) is stops


def test_the_middle_of_every_gap_is_a_temperature_of_the_path():
    """Whether or not it was certified as it lay, which rounding may decide: the same temperatures are validated."""
    table = gaussian()
    path = AnnealedLogisticRegression().fit(table.X, table.y).path_
    assert path.is_node.tolist() == [number % 2 == 0 for number in range(len(path))]
    assert (path.n_iter[~path.is_node] == 0).any()
    np.testing.assert_allclose(np.diff(np.log(path.temperatures)), np.log(0.4) / 2)


def test_most_temperatures_of_a_fine_ladder_are_certified_as_they_lie():
    table = gaussian()
    ladder = 4.0 * 0.95 ** np.arange(120)
    path = AnnealedLogisticRegression(schedule=ladder, cv=2).fit(table.X, table.y).path_
    assert path.converged.all()
    assert np.mean(path.n_iter[~path.is_node] == 0) > 0.7


def test_several_temperatures_are_looked_at_together_and_solved_where_they_need_it():
    problem = InnerProduct().prepare(stack_of(gaussian()))
    solver, temperatures = LBFGS(), np.array([1.0, 0.5, 0.25])
    options = {"tol": 1e-5, "max_iter": 500, "memory": solver.new_memory(problem)}
    alone = [solver.minimize(problem, problem.start(own), own, final_only=True, **options) for own in temperatures]
    points = np.stack([own.parameters[0] for own in alone])
    points[1, 0] += 0.1
    before = points.copy()
    together = solver.fill(problem, points, temperatures, **options)
    np.testing.assert_array_equal(points, before)
    assert together.converged.all()
    assert (together.n_iter > 0).tolist() == [False, True, False]
    np.testing.assert_allclose(together.value, [own.value[0] for own in alone], rtol=1e-6)
    np.testing.assert_array_equal(together.parameters[::2], points[::2])


def test_starts_a_step_away_take_two_looks_together_and_far_ones_are_solved_alone(monkeypatch):
    problem = InnerProduct().prepare(stack_of(gaussian()))
    solver, temperatures = LBFGS(), np.array([1.0, 0.9, 0.8])
    options = {"tol": 1e-3, "max_iter": 500, "memory": solver.new_memory(problem)}
    alone = [solver.minimize(problem, problem.start(own), own, final_only=True, **options) for own in temperatures]
    noise = np.random.default_rng(0).normal(size=(3, problem.n_parameters))
    near = np.stack([own.parameters[0] for own in alone]) + 2e-3 * noise
    looks, objective = [], problem.objective

    def counted(parameters, *settings):
        looks.append(len(parameters))
        return objective(parameters, *settings)

    monkeypatch.setattr(problem, "objective", counted)
    stepped = solver.fill(problem, near, temperatures, **options)
    assert looks == [3, 3]
    assert stepped.n_iter.tolist() == [1, 1, 1]
    far = near.copy()
    far[1] *= -30
    solved = solver.fill(problem, far, temperatures, **options)
    assert solved.converged.all()
    assert solved.n_iter[1] > 1
    for found in (stepped, solved):
        np.testing.assert_allclose(found.value, [own.value[0] for own in alone], rtol=1e-5)


@pytest.mark.parametrize("solver", [LBFGS(), Newton()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("n_starts", [1, 2])
def test_a_filling_tells_whether_it_began_far_from_its_minimum(solver, n_starts):
    problem = InnerProduct().prepare(stack_of(gaussian()))
    temperatures = np.array([1.0, 0.9])[:n_starts]
    options = {"tol": 1e-4, "max_iter": 500, "memory": solver.new_memory(problem)}
    cold = np.repeat(problem.start(1.0)[:1], n_starts, axis=0)
    solved = solver.fill(problem, cold, temperatures, **options)
    assert solved.was_far.all()
    assert not solver.fill(problem, solved.parameters, temperatures, **options).was_far.any()


def test_gaps_beside_a_far_filling_are_halved_until_what_is_between_is_certified(monkeypatch):
    walk = walk_of(FAR)
    filled = []

    def fill_together(temperatures):
        filled.append(np.log(temperatures))
        late = len(filled) > 2
        return [replace(step(own, is_node=False, n_iter=0 if late else 2), was_far=not late) for own in filled[-1]]

    monkeypatch.setattr(walk, "_fill_together", fill_together)
    walk.waiting = waiting(-0.5 * FAR)
    walk.fill(np.exp(-FAR))
    expected = [[-0.5], [-0.25, -0.75], [-0.125, -0.375, -0.625, -0.875]]
    assert len(filled) == len(expected)
    for found, places in zip(filled, expected, strict=True):
        np.testing.assert_allclose(found, FAR * np.array(places))
    kept = [np.log(own.temperature) for own in walk.fillings]
    np.testing.assert_allclose(kept, FAR * np.array([-0.5, -0.25, -0.75]))  # not those certified as they lay


# --- through the estimator ----------------------------------------------------------------------------


FINER_LADDER = 4.0 * 0.9 ** np.arange(32)


def nodes_and_every(monkeypatch, ladder, X, y):
    """The path of a ladder as it is walked, and with a node at every temperature."""
    walked = AnnealedLogisticRegression(schedule=ladder, cv=3).fit(X, y).path_
    monkeypatch.setattr("annealed.walk.cooling.REACH", 0.0)
    every = AnnealedLogisticRegression(schedule=ladder, cv=3).fit(X, y).path_
    assert every.is_node.all()
    return walked, every


@pytest.mark.parametrize("ladder", [LADDER, FINER_LADDER], ids=len)
@pytest.mark.parametrize("make", [gaussian, two_classes, wide, text, heavy_tailed], ids=lambda make: make.__name__)
def test_a_fine_ladder_keeps_its_temperatures_with_nodes_as_far_apart_as_they_may_be(make, ladder):
    table = make()
    path = AnnealedLogisticRegression(schedule=ladder, cv=2).fit(table.X, table.y).path_
    assert path.temperatures.tolist() == ladder.tolist()
    assert path.is_node[0]
    assert path.is_node[-1]
    assert not path.is_node.all()
    nodes = np.log(path.temperatures[path.is_node])
    assert (nodes[:-1] - nodes[1:]).max() <= REACH
    assert (nodes[:-2] - nodes[2:]).min() > REACH


@pytest.mark.parametrize("make", [gaussian, two_classes, badly_scaled, separable, wide], ids=lambda make: make.__name__)
def test_final_fit_between_nodes_is_the_minimum_a_solve_there_finds(make):
    table = make()
    path = AnnealedLogisticRegression(schedule=LADDER, cv=2).fit(table.X, table.y).path_
    matrix = oracles.penalty_matrix(table.X, "standardize")
    for index in np.flatnonzero(~path.is_node):
        temperature = path.temperatures[index]
        alone = (
            AnnealedLogisticRegression(schedule=[temperature], selection="last", tol=1e-8).fit(table.X, table.y).path_
        )
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        reached = oracles.penalized_free_energy(table.X, table.y, lambda_, intercept, temperature, 1.0, matrix)
        np.testing.assert_allclose(reached, alone.free_energy[0], rtol=1e-6)
        np.testing.assert_allclose(path.free_energy[index], alone.free_energy[0], rtol=1e-6)


@pytest.mark.parametrize("make", [gaussian, two_classes, badly_scaled, separable, wide], ids=lambda make: make.__name__)
def test_folds_between_nodes_score_as_if_they_were_solved_there(make, monkeypatch):
    table = make()
    walked, every = nodes_and_every(monkeypatch, LADDER, table.X, table.y)
    assert not walked.is_node.all()
    np.testing.assert_allclose(walked.validation_score, every.validation_score, atol=1e-3)
    assert walked.best_index == every.best_index


@pytest.mark.parametrize("make", [gaussian, two_classes, separable, wide, text], ids=lambda make: make.__name__)
def test_folds_of_a_finer_ladder_score_alike_past_its_second_node(make, monkeypatch):
    """Before it the polynomial has three nodes only, all but one of them colder."""
    table = make()
    walked, every = nodes_and_every(monkeypatch, FINER_LADDER, table.X, table.y)
    second = np.flatnonzero(walked.is_node)[1]
    np.testing.assert_allclose(walked.validation_score[second:], every.validation_score[second:], atol=1e-3)
    assert walked.best_index == every.best_index


@pytest.mark.parametrize("make", [gaussian, two_classes, separable, wide], ids=lambda make: make.__name__)
def test_nodes_solved_together_are_those_solved_one_by_one(make, monkeypatch):
    """Also where the walk ends: nodes of a group that lie beyond are forgotten, and nothing is filled there."""
    table, paths = make(), []
    for size in (1, 6):
        monkeypatch.setattr("annealed.solvers.newton.GROUP_SIZE", size)
        paths.append(AnnealedLogisticRegression(tol=1e-6).fit(table.X, table.y).path_)
    alone, together = paths
    np.testing.assert_allclose(together.temperatures, alone.temperatures, rtol=1e-12)
    np.testing.assert_array_equal(together.is_node, alone.is_node)
    assert together.best_index == alone.best_index
    assert together.converged.all()
    np.testing.assert_allclose(together.validation_score, alone.validation_score, rtol=2e-3)
    np.testing.assert_allclose(together.coef, alone.coef, atol=2e-3 * np.abs(alone.coef).max())


class StopsAt:
    """Wants no temperature beyond the first few, and remembers what it was told."""

    def __init__(self, n_nodes):
        self.n_nodes, self.initial_scaling, self.seen = n_nodes, [], []

    def begin(self, temperature):
        self.initial_scaling.append(temperature)

    def end(self, nodes):
        self.seen.append(len(nodes))
        return len(nodes) == self.n_nodes


@pytest.mark.parametrize("n_nodes", [1, 6, 8])
def test_a_watch_is_told_of_each_node_of_a_group_and_may_end_the_walk_within_it(n_nodes):
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    solver, watch = Newton(), StopsAt(n_nodes)
    assert solver.n_together(problem) == GROUP_SIZE
    options = {"tol": 1e-5, "max_iter": 100, "memory": solver.new_memory(problem)}
    steps = anneal(problem, AdaptiveSchedule(), solver, NoValidation(), watch=watch, **options)
    nodes = [step.temperature for step in steps if step.is_node]
    assert watch.seen == list(range(1, n_nodes + 1))
    assert watch.initial_scaling == nodes
    assert steps[-1].temperature == nodes[-1]
    assert all(step.converged for step in steps)


def test_a_scorer_of_ones_own_sees_the_folds_between_nodes_as_log_loss_does():
    table = gaussian()

    def minus_log_loss(classifier, X, y):
        posterior = classifier.predict_proba(X)
        return np.log(posterior[np.arange(len(y)), y]).mean()

    own, usual = (
        AnnealedLogisticRegression(schedule=LADDER, cv=3, scoring=scoring, tol=1e-8).fit(table.X, table.y).path_
        for scoring in (minus_log_loss, "neg_log_loss")
    )
    assert not own.is_node.all()
    np.testing.assert_allclose(own.validation_score, usual.validation_score, rtol=2e-5)  # as far as folds are solved
    np.testing.assert_allclose(own.train_score, usual.train_score, rtol=2e-5)  # their scale is by the folds


def outliers(return_X_y):
    table = heavy_tailed()
    return table.X, table.y


def indicators(return_X_y):
    table = categories()
    return table.X, table.y


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
@pytest.mark.parametrize(
    "load", [load_iris, load_wine, load_breast_cancer, outliers, indicators], ids=lambda load: load.__name__
)
def test_default_schedule_is_known_in_the_middle_of_every_gap(load, solver):
    X, y = load(return_X_y=True)
    path = AnnealedClassifier(InnerProduct(penalty_scaling="standardize"), solver=solver).fit(X, y).path_
    likelihood = PenalizedLikelihood(X, y, "standardize")
    for hot, cold in pairwise(path.temperatures):
        middle = np.sqrt(hot * cold)
        arrays, _ = path.at(middle)
        assert likelihood.gap(arrays["coef"], arrays["intercept"], middle).relative <= 1e-6


@pytest.mark.parametrize("schedule", ["auto", LADDER], ids=["auto", "ladder"])
@pytest.mark.parametrize("objective", [Distance(), Radial()], ids=["distance", "radial"])
def test_a_family_without_one_smooth_curve_has_nodes_only(objective, schedule):
    table = gaussian()
    path = AnnealedClassifier(objective, schedule=schedule, cv=2).fit(table.X, table.y).path_
    assert len(path) >= len(LADDER)
    assert path.is_node.all()
