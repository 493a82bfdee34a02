"""Nodes of a path and the temperatures between them: their order, their starts, and their accuracy."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracles
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from small_problems import (
    Radial,
    badly_scaled,
    categories,
    fold_masks,
    gaussian,
    heavy_tailed,
    separable,
    solve,
    solve_final,
    stack_of,
    text,
    two_classes,
    wide,
)

from annealed import AnnealedClassifier, AnnealedLogisticRegression
from annealed.path import AdaptiveSchedule, FixedSchedule, Step, Validation, anneal
from annealed.path.adaptive import has_ended
from annealed.path.cooling import REACH, _Path
from annealed.path.prediction import predicted
from annealed.problems import Distance, InnerProduct
from annealed.solvers import LBFGS, Newton, Plan, Points, Solution
from annealed.solvers.newton import GROUP_SIZE
from annealed.solvers.plan import FEWEST_BEFORE
from annealed.validation.selection import NoValidation
from benchmarks.quality import PenalizedLikelihood

LADDER = 4.0 * 0.7 ** np.arange(12)
FAR, NEAR = 0.9, 0.3  # in log temperature, between nodes


class FewFits:
    """The parts of a problem that a path uses."""

    n_fits = 3
    hessians = None
    extrapolates = temperature_free = interpolates = True
    visits_all = False

    def carry(self, parameters, temperature, new_temperature):
        return parameters


def course(place):
    """Parameters (n_fits, 2) on a curve that is no polynomial."""
    return np.exp(np.multiply.outer([2.0, 1.5, 1.0], [place, -place]))


def step(place, is_node=True, n_iter=1, n_fits=3):
    return Step(np.exp(place), 1.0, 0.0, n_iter, True, is_node, Validation(), course(place)[:n_fits], 0.0)


def annealing_of(spacing, n_nodes=8):
    annealing = _Path(Plan(FewFits(), LBFGS(), 1e-4, 100, None), None, is_adaptive=True)
    annealing.nodes = [step(-spacing * number) for number in range(n_nodes)]
    return annealing


def waiting(*places):
    return [float(np.exp(place)) for place in places]


def with_tangent(place):
    return replace(step(place), tangent=course(place) * np.multiply.outer([2.0, 1.5, 1.0], [1, -1]))


def worst_prediction(nodes, place):
    """The largest relative error of the prediction at a place."""
    return np.abs(predicted(FewFits(), nodes, np.exp(place)) / course(place) - 1).max()


@pytest.mark.parametrize("n_nodes", [1, 2, 5])
def test_tangents_predict_better_than_points_only(n_nodes):
    positions = -0.3 * np.arange(n_nodes)
    by_points = worst_prediction([step(place) for place in positions], positions[-1] - 0.3)
    assert worst_prediction([with_tangent(place) for place in positions], positions[-1] - 0.3) < 0.5 * by_points


def test_tangents_of_nodes_that_are_close_are_not_extrapolated_far():
    near = [with_tangent(place) for place in (0.0, -1e-3)]
    last_only = [with_tangent(-1e-3)]
    np.testing.assert_array_equal(*(predicted(FewFits(), nodes, np.exp(-0.5)) for nodes in (near, last_only)))


def test_one_tangent_is_used_if_the_node_before_has_none():
    nodes = [step(0.0), with_tangent(-NEAR)]
    target = -2 * NEAR
    expected = nodes[1].parameters - NEAR * nodes[1].tangent
    np.testing.assert_allclose(predicted(FewFits(), nodes, np.exp(target)), expected, rtol=1e-12)


def test_at_a_large_distance_the_last_point_is_used_without_its_tangent():
    nodes = [with_tangent(place) for place in (0.0, -0.5)]
    np.testing.assert_array_equal(predicted(FewFits(), nodes, np.exp(-5.0)), nodes[-1].parameters)


def test_the_middle_of_each_gap_comes_first():
    positions = [-0.2, -0.44, -0.7, -1.1, -1.36, -1.6]
    middles = annealing_of(FAR)._nearest_middles(waiting(*positions))
    assert middles == pytest.approx(np.exp([-0.44, -1.36]))
    assert annealing_of(FAR)._nearest_middles([]) == []


def test_the_final_fit_is_interpolated_from_all_solved_temperatures_and_the_folds_from_nodes():
    place = -3 * FAR - 0.2
    (without,) = annealing_of(FAR)._between([np.exp(place)])
    annealing = annealing_of(FAR)
    annealing.others = [
        step(-3 * FAR - 0.45, is_node=False, n_fits=1),
        step(-2 * FAR - 0.45, is_node=False, n_fits=1),
    ]
    (point,) = annealing._between([np.exp(place)])
    np.testing.assert_array_equal(point[1:], without[1:])
    assert np.abs(point[0] - course(place)[0]).max() < 0.2 * np.abs(without[0] - course(place)[0]).max()


def test_a_temperature_certified_without_a_step_adds_no_point():
    annealing = annealing_of(NEAR)
    (without,) = annealing._between([np.exp(-0.7)])
    annealing.others = [step(-0.75, is_node=False, n_iter=0, n_fits=1)]
    np.testing.assert_array_equal(annealing._between([np.exp(-0.7)]), [without])


class StopsPastItsBest:
    learns_late = fills_gaps = False

    def should_stop(self, temperatures, validation, value):
        means = [scores.mean() for scores in validation]
        return max(means) > means[-1]


@pytest.mark.parametrize(
    ("scores", "penalty", "stops"),
    [((-3, -2, -1), (0, 0, 0), False), ((-3, -1, -2), (0, 0, 9), True), ((-3, -2, -1), (0, 0, 2), True)],
    ids=["neither", "scores", "penalized scores"],
)
def test_a_path_ends_past_the_best_of_its_scores_or_of_its_penalized_scores(scores, penalty, stops):
    nodes = [
        replace(step(-number), validation=Validation(np.full(5, float(score)), penalty=float(extra)))
        for number, (score, extra) in enumerate(zip(scores, penalty, strict=True))
    ]
    assert has_ended(FewFits(), StopsPastItsBest(), nodes) is stops


def test_an_adaptive_path_ends_after_two_temperatures_that_did_not_converge():
    """Each has a budget: colder ones would only spend more. Few iterations are intended, or end where rounding does."""
    failed = [replace(step(-number, n_iter=100), converged=False) for number in (1, 2)]
    nodes = [step(0), *failed]
    assert has_ended(FewFits(), AdaptiveSchedule(), nodes)
    assert not has_ended(FewFits(), AdaptiveSchedule(), [replace(node, n_iter=15) for node in nodes])
    assert not has_ended(FewFits(), AdaptiveSchedule(), nodes[:2])
    assert not has_ended(FewFits(), AdaptiveSchedule(), [step(0), failed[0], step(-2)])
    assert not has_ended(FewFits(), FixedSchedule([1.0, 0.4, 0.1, 0.01]), nodes)


@pytest.mark.parametrize(
    ("is_given", "n_before", "most"), [(False, None, 1000), (False, 3, 100), (False, 60, 240), (True, 3, 1000)]
)
def test_a_temperature_has_a_budget_relative_to_all_hotter_ones(is_given, n_before, most):
    allowed = []

    class Recording(LBFGS):
        def solve(self, problem, points, accuracy, memory):
            allowed.append(accuracy.max_iter)
            return Solution.unsolved(points.parameters)

    plan = Plan(FewFits(), Recording(), 1e-4, 1000, None, is_given)
    plan.solve(Points.of_final(np.zeros((1, 2)), [1.0]), n_before=n_before)
    assert allowed == [most]


def test_temperatures_that_do_not_converge_share_a_budget():
    allowed = []

    class InVain(LBFGS):
        def solve(self, problem, points, accuracy, memory):
            allowed.append(accuracy.max_iter)
            return replace(Solution.unsolved(points.parameters), n_iter=np.array([accuracy.max_iter // 2]))

    plan = Plan(FewFits(), InVain(), 1e-4, 400, None)
    for temperature in 10.0 ** -np.arange(8):
        plan.solve(Points.of_final(np.zeros((1, 2)), [temperature]))
    assert allowed == [400, 200, 100, 50, FEWEST_BEFORE, FEWEST_BEFORE, FEWEST_BEFORE, FEWEST_BEFORE]


def test_separable_classes_take_few_iterations_however_low_the_temperature():
    """The penalty is lost in rounding, and the loss falls as long as there are steps: a ladder took minutes."""
    model = AnnealedClassifier(schedule=10.0 ** -np.arange(300), selection="last")
    path = model.fit(separable().X, separable().y).path_
    assert path.n_iter.sum() < 1000


def test_the_middle_of_every_gap_is_a_temperature_of_the_path():
    """Whether a step is needed there may depend on rounding, which must not change the validated temperatures."""
    table = gaussian()
    path = AnnealedLogisticRegression().fit(table.X, table.y).path_
    assert path.is_node.tolist() == [number % 2 == 0 for number in range(len(path))]
    assert (path.n_iter[~path.is_node] == 0).any()
    np.testing.assert_allclose(np.diff(np.log(path.temperatures)), np.log(0.4) / 2)


def test_most_temperatures_of_a_fine_ladder_are_certified_without_a_step():
    table = gaussian()
    ladder = 4.0 * 0.95 ** np.arange(120)
    path = AnnealedLogisticRegression(schedule=ladder, cv=2).fit(table.X, table.y).path_
    assert path.converged.all()
    assert np.mean(path.n_iter[~path.is_node] == 0) > 0.7


def test_close_starts_take_two_joint_evaluations(monkeypatch):
    problem = InnerProduct().prepare(stack_of(gaussian()))
    temperatures, options = [1.0, 0.9, 0.8], {"tol": 1e-3, "max_iter": 500}
    separate = [solve(problem, temperature, tol=1e-3) for temperature in temperatures]
    noise = np.random.default_rng(0).normal(size=(3, problem.scores.table.n_parameters))
    near = np.concatenate([solution.parameters for solution in separate]) + 2e-3 * noise
    n_points, objective = [], problem.objective

    def counted(parameters, *settings):
        n_points.append(len(parameters))
        return objective(parameters, *settings)

    monkeypatch.setattr(problem, "objective", counted)
    stepped = solve_final(LBFGS(), problem, near, temperatures, **options)
    assert n_points == [3, 3]
    assert stepped.n_iter.tolist() == [1, 1, 1]
    near[1] *= -30
    solved = solve_final(LBFGS(), problem, near, temperatures, **options)
    assert solved.converged.all()
    assert solved.n_iter[1] > 1
    for solution in (stepped, solved):
        np.testing.assert_allclose(solution.value, [alone.value[0] for alone in separate], rtol=1e-5)


@pytest.mark.parametrize("solver", [LBFGS(), Newton()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("n_starts", [1, 2])
def test_a_start_that_was_far_from_its_minimum_is_reported(solver, n_starts):
    problem = InnerProduct().prepare(stack_of(gaussian()))
    temperatures, options = [1.0, 0.9][:n_starts], {"tol": 1e-4, "max_iter": 500}
    cold = np.repeat(problem.start(1.0)[:1], n_starts, axis=0)
    solved = solve_final(solver, problem, cold, temperatures, **options)
    assert solved.was_far.all()
    assert not solve_final(solver, problem, solved.parameters, temperatures, **options).was_far.any()


def test_gaps_next_to_a_poor_start_are_halved_until_starts_are_certified(monkeypatch):
    annealing = annealing_of(FAR)
    solved = []

    def solved_between(temperatures):
        solved.append(np.log(temperatures))
        late = len(solved) > 2
        return [replace(step(place, is_node=False, n_iter=0 if late else 2), was_far=not late) for place in solved[-1]]

    monkeypatch.setattr(annealing, "_solved_between", solved_between)
    annealing.waiting = waiting(-0.5 * FAR)
    annealing.refine(np.exp(-FAR))
    expected = [[-0.5], [-0.25, -0.75], [-0.125, -0.375, -0.625, -0.875]]
    assert len(solved) == len(expected)
    for positions, places in zip(solved, expected, strict=True):
        np.testing.assert_allclose(positions, FAR * np.array(places))
    kept = [np.log(other.temperature) for other in annealing.others]
    np.testing.assert_allclose(kept, FAR * np.array([-0.5, -0.25, -0.75]))  # those certified without a step are dropped


# --- through the estimator ----------------------------------------------------------------------------


FINER_LADDER = 4.0 * 0.9 ** np.arange(32)


def with_few_and_all_nodes(monkeypatch, ladder, X, y):
    """The path of a ladder with and without temperatures between nodes."""
    sparse = AnnealedLogisticRegression(schedule=ladder, cv=3).fit(X, y).path_
    monkeypatch.setattr("annealed.path.cooling.REACH", 0.0)
    all_nodes = AnnealedLogisticRegression(schedule=ladder, cv=3).fit(X, y).path_
    assert all_nodes.is_node.all()
    return sparse, all_nodes


@pytest.mark.parametrize("ladder", [LADDER, FINER_LADDER], ids=len)
@pytest.mark.parametrize("make", [gaussian, two_classes, wide, text, heavy_tailed], ids=lambda make: make.__name__)
def test_a_fine_ladder_keeps_its_temperatures_with_nodes_as_far_apart_as_allowed(make, ladder):
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
def test_the_final_fit_between_nodes_equals_a_separate_fit(make):
    table = make()
    path = AnnealedLogisticRegression(schedule=LADDER, cv=2).fit(table.X, table.y).path_
    matrix = oracles.penalty_matrix(table.X, "standardize")
    for index in np.flatnonzero(~path.is_node):
        temperature = path.temperatures[index]
        separate = (
            AnnealedLogisticRegression(schedule=[temperature], selection="last", tol=1e-8).fit(table.X, table.y).path_
        )
        lambda_, intercept = temperature * path.coef[index], temperature * path.intercept[index]
        reached = oracles.penalized_free_energy(table.X, table.y, lambda_, intercept, temperature, 1.0, matrix)
        np.testing.assert_allclose(reached, separate.free_energy[0], rtol=1e-6)
        np.testing.assert_allclose(path.free_energy[index], separate.free_energy[0], rtol=1e-6)


@pytest.mark.parametrize("make", [gaussian, two_classes, badly_scaled, separable, wide], ids=lambda make: make.__name__)
def test_interpolated_folds_score_like_solved_ones(make, monkeypatch):
    table = make()
    sparse, all_nodes = with_few_and_all_nodes(monkeypatch, LADDER, table.X, table.y)
    assert not sparse.is_node.all()
    np.testing.assert_allclose(sparse.validation_score, all_nodes.validation_score, atol=1e-3)
    assert sparse.best_index == all_nodes.best_index


@pytest.mark.parametrize("make", [gaussian, two_classes, separable, wide, text], ids=lambda make: make.__name__)
def test_interpolated_folds_of_a_finer_ladder_score_like_solved_ones_past_its_second_node(make, monkeypatch):
    """Before it, the polynomial has three nodes only, two of which have lower temperatures."""
    table = make()
    sparse, all_nodes = with_few_and_all_nodes(monkeypatch, FINER_LADDER, table.X, table.y)
    second = np.flatnonzero(sparse.is_node)[1]
    np.testing.assert_allclose(sparse.validation_score[second:], all_nodes.validation_score[second:], atol=1e-3)
    assert sparse.best_index == all_nodes.best_index


@pytest.mark.parametrize("make", [gaussian, two_classes, separable, wide], ids=lambda make: make.__name__)
def test_nodes_solved_together_equal_nodes_solved_one_by_one(make, monkeypatch):
    """At the end of the path, the nodes of a group beyond it are dropped and none is added between them."""
    table, paths = make(), []
    for size in (1, 6):
        monkeypatch.setattr("annealed.solvers.newton.GROUP_SIZE", size)
        paths.append(AnnealedLogisticRegression(tol=1e-6).fit(table.X, table.y).path_)
    separate, together = paths
    np.testing.assert_allclose(together.temperatures, separate.temperatures, rtol=1e-12)
    np.testing.assert_array_equal(together.is_node, separate.is_node)
    assert together.best_index == separate.best_index
    assert together.converged.all()
    np.testing.assert_allclose(together.validation_score, separate.validation_score, rtol=2e-3)
    np.testing.assert_allclose(together.coef, separate.coef, atol=2e-3 * np.abs(separate.coef).max())


class StopsAt:
    """A callback that stops the path after a number of nodes, and records its calls."""

    def __init__(self, n_nodes):
        self.n_nodes, self.temperatures, self.n_seen = n_nodes, [], []

    def begin(self, temperature):
        self.temperatures.append(temperature)

    def end(self, nodes):
        self.n_seen.append(len(nodes))
        return len(nodes) == self.n_nodes


@pytest.mark.parametrize("n_nodes", [1, 6, 8])
def test_a_callback_is_called_for_each_node_of_a_group_and_may_end_the_path_within_it(n_nodes):
    table = gaussian()
    problem = InnerProduct().prepare(stack_of(table, fold_masks(len(table.y))), random_state=0)
    solver, watch = Newton(), StopsAt(n_nodes)
    plan = Plan.of(problem, solver, 1e-5, 100)
    assert solver.nodes_together == GROUP_SIZE
    steps = anneal(plan, AdaptiveSchedule(), NoValidation(), watch)
    nodes = [step.temperature for step in steps if step.is_node]
    assert watch.n_seen == list(range(1, n_nodes + 1))
    assert watch.temperatures == nodes
    assert steps[-1].temperature == nodes[-1]
    assert all(step.converged for step in steps)


def test_a_custom_scorer_receives_the_same_interpolated_folds_as_log_loss():
    table = gaussian()

    def minus_log_loss(classifier, X, y):
        posterior = classifier.predict_proba(X)
        return np.log(posterior[np.arange(len(y)), y]).mean()

    custom, usual = (
        AnnealedLogisticRegression(schedule=LADDER, cv=3, scoring=scoring, tol=1e-8).fit(table.X, table.y).path_
        for scoring in (minus_log_loss, "neg_log_loss")
    )
    assert not custom.is_node.all()
    np.testing.assert_allclose(custom.validation_score, usual.validation_score, rtol=2e-5)  # the accuracy of the folds
    np.testing.assert_allclose(custom.train_score, usual.train_score, rtol=2e-5)  # calibration depends on the folds


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
def test_the_default_path_is_accurate_in_the_middle_of_every_gap(load, solver):
    X, y = load(return_X_y=True)
    path = AnnealedClassifier(InnerProduct(penalty_scaling="standardize"), solver=solver).fit(X, y).path_
    likelihood = PenalizedLikelihood(X, y, "standardize")
    for hot, cold in pairwise(path.temperatures):
        middle = np.sqrt(hot * cold)
        arrays, _ = path.at(middle)
        assert likelihood.gap(arrays["coef"], arrays["intercept"], middle).relative <= 1e-6


@pytest.mark.parametrize("schedule", ["auto", LADDER], ids=["auto", "ladder"])
@pytest.mark.parametrize("objective", [Distance(), Radial()], ids=["distance", "radial"])
def test_a_family_that_does_not_interpolate_has_nodes_only(objective, schedule):
    table = gaussian()
    path = AnnealedClassifier(objective, schedule=schedule, cv=2).fit(table.X, table.y).path_
    assert len(path) >= len(LADDER)
    assert path.is_node.all()
