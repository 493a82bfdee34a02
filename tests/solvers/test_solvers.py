"""Every solver: minima of convex problems, free energies that never increase, and stacks that equal separate fits."""

import numpy as np
import oracles
import pytest
from small_problems import (
    Loudness,
    Radial,
    badly_scaled,
    fold_masks,
    gaussian,
    rare_class,
    separable,
    solve,
    solve_final,
    solve_fits,
    stack_of,
    standardized,
    two_classes,
)

from annealed.arrays import HOST
from annealed.path.prediction import carried_over
from annealed.problems import Distance, InnerProduct, Quadratic
from annealed.solvers import LBFGS, SOLVERS, Accuracy, Plan, Points
from annealed.solvers.base import STEP_SHARE
from annealed.solvers.lbfgs import POINTS_TOGETHER
from annealed.solvers.pairs import WHOLE

SMOOTH = [name for name in SOLVERS if name != "subspace"]  # solvers that evaluate the gradient of a problem
CONVEX = [gaussian, badly_scaled, two_classes, rare_class, separable]
FAMILIES = {
    "inner_product": InnerProduct(),
    "distance": Distance(),
    "literal_distance": Distance(anchor=0, init="zero"),
    "quadratic": Quadratic(),
    "radial": Radial(),
    "loudness": Loudness(),
}


class WrappedHessians:
    """The Hessians of a problem, with other numbers of the fits, and with every evaluation recorded."""

    def __init__(self, hessians, number=lambda fits: fits, record=lambda *evaluation: None):
        self.hessians, self.number, self.record = hessians, number, record

    def __getattr__(self, name):
        return getattr(self.hessians, name)

    def terms(self, parameters, temperature, fits):
        answer = self.hessians.terms(parameters, temperature, self.number(fits))
        self.record(parameters, answer[0], fits)
        return answer

    def along(self, parameters, along, temperature, fits):
        answer = self.hessians.along(parameters, along, temperature, self.number(fits))
        self.record(parameters, answer[0], fits)
        return answer


class SingleFit:
    """One fit of a stack as a separate problem, in the coordinates of the stack."""

    n_fits = 1

    def __init__(self, problem, fit):
        self.problem, self.fit = problem, fit

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def _number(self, fits):
        return np.full(len(np.arange(1)[fits]), self.fit)

    def start(self, temperature):
        return self.problem.start(temperature)[[self.fit]]

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        return self.problem.objective(parameters, temperature, self._number(fits), quick)

    @property
    def hessians(self):
        return WrappedHessians(self.problem.hessians, number=self._number)

    def penalty(self, temperature, fits):
        return self.problem.penalty(temperature, self._number(fits))

    def precondition(self, vectors, temperature, fits, learned=None):
        return self.problem.precondition(vectors, temperature, self._number(fits), learned)

    def curvature(self, temperature, fits):
        return self.problem.curvature(temperature, self._number(fits))

    def certificate(self, gradient, value, temperature, fits):
        return self.problem.certificate(gradient, value, temperature, self._number(fits))


class Recorder:
    """A problem that records every point a solver evaluates, and its value."""

    def __init__(self, problem):
        self.problem = problem
        self.visited = []

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def _record(self, parameters, values, fits):
        for fit, point, value in zip(np.arange(self.problem.n_fits)[fits], parameters, values, strict=True):
            self.visited.append((fit, point.copy(), value))

    def objective(self, parameters, temperature, fits=slice(None), quick=False):
        answer = self.problem.objective(parameters, temperature, fits, quick)
        self._record(parameters, answer[0], fits)
        return answer

    @property
    def hessians(self):
        return WrappedHessians(self.problem.hessians, record=self._record)


class Stumbling(Recorder):
    """A problem whose value is infinite in the second and third pass, so that the first step of every fit fails."""

    def _record(self, parameters, values, fits):
        self.visited.append(len(values))
        if len(self.visited) in (2, 3):
            values[:] = np.inf


def prepared(family, table, n_folds=2):
    return family.prepare(stack_of(table, fold_masks(len(table.y), n_folds)), 0)


def solvers_for(family):
    has_hessian = isinstance(family, InnerProduct | Quadratic)
    return [name for name in SMOOTH if has_hessian or name != "newton"]


def family_and_solver():
    return [(family, solver) for family in FAMILIES for solver in solvers_for(FAMILIES[family])]


def minimize(problem, solver, temperature, start=None, tol=1e-12, max_iter=1000):
    start = problem.start(temperature) if start is None else start
    return solve_fits(SOLVERS[solver](), problem, start, temperature, tol=tol, max_iter=max_iter)


# --- the minimum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SMOOTH)
@pytest.mark.parametrize("temperature", [1.0, 0.02])
@pytest.mark.parametrize("make", CONVEX, ids=lambda make: make.__name__)
def test_reaches_the_minimum_of_a_convex_problem(make, temperature, solver):
    table = make()
    problem = InnerProduct(penalty_scaling="standardize").prepare(stack_of(table))
    solution = minimize(problem, solver, temperature, tol=1e-7, max_iter=20000)
    assert solution.converged.all()
    expected = oracles.multinomial_optimum(standardized(table).X, table.y, temperature * np.eye(table.X.shape[1]))
    np.testing.assert_allclose(solution.value[0], expected.value, rtol=1e-9)
    reported = problem.report(solution.parameters, temperature)
    np.testing.assert_allclose(reported["coef"][0] * table.X.std(axis=0), expected.coef, atol=1e-5)


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_solution_agrees_with_the_problem(family, solver):
    """Value and gradient norm are those of the returned parameters, and converged fits are within the tolerance.

    The last step of Newton's method is taken without an evaluation, and so is that of a fold in L-BFGS. The gradient is
    then at most the reported one, and the value of a fold agrees to within what such a step may predict.
    """
    problem = prepared(FAMILIES[family], gaussian())
    solution = minimize(problem, solver, 2.0, tol=1e-5)
    value, gradient, _ = problem.objective(solution.parameters, 2.0)
    np.testing.assert_allclose(solution.value[0], value[0], rtol=1e-10)
    promised = STEP_SHARE * 1e-5 if solver == "lbfgs" and problem.takes_last_step else 1e-10
    np.testing.assert_allclose(solution.value, value, rtol=promised)
    largest = np.abs(gradient).max(axis=1)
    assert (largest <= solution.gradient_norm + 1e-9).all()
    if solver != "newton":
        evaluated = slice(0, 1) if solver == "lbfgs" else slice(None)
        np.testing.assert_allclose(solution.gradient_norm[evaluated], largest[evaluated], atol=1e-9)
    assert solution.converged.all()
    assert largest[0] <= 1e-5
    assert solution.gradient_norm[0] <= 1e-5
    assert largest.max() <= (1e-3 if solver == "lbfgs" else 1e-5)


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_iterations_are_bounded_and_counted(family, solver):
    problem = prepared(FAMILIES[family], gaussian())
    solution = minimize(problem, solver, 0.5, max_iter=2)
    assert solution.n_iter.tolist() == [2, 2, 2]
    assert not solution.converged.any()


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_a_solved_start_is_unchanged(family, solver):
    problem = prepared(FAMILIES[family], gaussian())
    solved = minimize(problem, "lbfgs", 2.0, tol=1e-9, max_iter=5000)
    again = minimize(problem, solver, 2.0, start=solved.parameters, tol=1e-5)
    assert again.n_iter.tolist() == [0, 0, 0]
    first, second = (problem.report(solution.parameters, 2.0) for solution in (solved, again))
    for name, array in first.items():
        np.testing.assert_allclose(second[name], array, atol=0 if solver == "scg" else 1e-5)


# --- a decreasing free energy ------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [20.0, 0.3])
@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_free_energy_never_increases_within_a_solve(family, solver, temperature):
    """A solve of the final fit that stops after k iterations is the first k iterations of a longer one."""
    problem = prepared(FAMILIES[family], gaussian(n_samples=60))
    values = np.array([minimize(problem, solver, temperature, max_iter=k).value for k in range(16)])
    increases = np.diff(values[:, 0]) / np.abs(values[0, 0])
    assert increases.max() <= 1e-13
    assert (values[1:] <= values[0]).all()
    assert (values[-1] < values[0]).all()


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_no_visited_point_is_better_than_the_returned_one(family, solver):
    problem = Recorder(prepared(FAMILIES[family], gaussian(n_samples=60)))
    solution = minimize(problem, solver, 2.0, tol=1e-6)
    for fit, _, value in problem.visited:
        assert solution.value[fit] <= value + 1e-9 * abs(value)


@pytest.mark.parametrize("solver", SMOOTH)
def test_survives_an_iteration_in_which_every_fit_fails(solver):
    problem = prepared(InnerProduct(), gaussian(n_samples=60))
    solution = minimize(Stumbling(problem), solver, 0.5, tol=1e-6)
    assert solution.converged.all()
    np.testing.assert_allclose(solution.value, solve(problem, 0.5).value, rtol=1e-8)


@pytest.mark.parametrize("solver", SMOOTH)
def test_survives_a_tolerance_below_rounding(solver):
    """In the end every step fails: the best point is returned, converged or not."""
    problem = prepared(InnerProduct(), two_classes())
    solution = minimize(problem, solver, 1.0, tol=1e-30, max_iter=300)
    np.testing.assert_allclose(solution.value, solve(problem, 1.0).value, rtol=1e-12)


@pytest.mark.parametrize("solver", SMOOTH)
def test_reaches_the_minimum_from_a_distant_start(solver):
    problem = prepared(InnerProduct(), gaussian(n_samples=60))
    start = 3 * np.random.default_rng(0).normal(size=problem.start(0.1).shape)
    solution = minimize(problem, solver, 0.1, start=start, tol=1e-6, max_iter=5000)
    assert solution.converged.all()
    expected = solve(problem, 0.1, tol=1e-9).value
    np.testing.assert_allclose(solution.value[0], expected[0], rtol=1e-8)
    np.testing.assert_allclose(solution.value[1:], expected[1:], rtol=1e-5)


# --- stacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_a_stack_equals_each_fit_solved_separately(family, solver):
    problem = prepared(FAMILIES[family], gaussian(n_samples=60), n_folds=3)
    stacked = minimize(problem, solver, 2.0, tol=1e-6)
    reported = problem.report(stacked.parameters, 2.0)
    for fit in range(problem.n_fits):
        separate = minimize(SingleFit(problem, fit), solver, 2.0, tol=1e-6)
        np.testing.assert_allclose(separate.value[0], stacked.value[fit], rtol=1e-9 if fit == 0 else 1e-6)
        for name, array in problem.report(separate.parameters, 2.0, np.array([fit])).items():
            np.testing.assert_allclose(array[0], reported[name][fit], atol=2e-3 if solver == "lbfgs" else 1e-4)


@pytest.mark.parametrize("solver", ["newton", "scg"])  # in L-BFGS, folds start where the final fit has ended
def test_first_iterations_of_a_stack_are_those_of_each_fit_solved_separately(solver):
    problem = prepared(InnerProduct(), gaussian(n_samples=60), n_folds=3)
    for max_iter in range(1, 5):
        stacked = minimize(problem, solver, 0.1, max_iter=max_iter)
        for fit in range(problem.n_fits):
            separate = minimize(SingleFit(problem, fit), solver, 0.1, max_iter=max_iter)
            expected = problem.report(stacked.parameters, 0.1)["coef"][fit]
            np.testing.assert_allclose(
                problem.report(separate.parameters, 0.1)["coef"][0], expected, rtol=1e-8, atol=1e-11
            )


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_the_final_fit_at_several_temperatures_equals_each_solved_alone(family, solver):
    problem = Recorder(prepared(FAMILIES[family], gaussian(n_samples=60)))
    temperatures, options = [3.0, 2.0, 1.0], {"tol": 1e-6, "max_iter": 1000}
    starts = np.concatenate([problem.start(temperature)[:1] for temperature in temperatures])
    starts[1] = minimize(problem.problem, solver, 2.0, tol=1e-7).parameters[0]
    before = starts.copy()
    together = solve_final(SOLVERS[solver](), problem, starts, temperatures, **options)
    np.testing.assert_array_equal(starts, before)
    assert {fit for fit, _, _ in problem.visited} == {0}
    assert together.converged.all()
    assert together.is_certified.all()
    assert (together.n_iter > 0).tolist() == [True, False, True]
    for number, temperature in enumerate(temperatures):
        alone = solve_final(SOLVERS[solver](), problem, starts[[number]], [temperature], **options)
        np.testing.assert_allclose(together.value[number], alone.value[0], rtol=1e-9)
        whole = minimize(problem.problem, solver, temperature, tol=1e-6)
        np.testing.assert_allclose(together.value[number], whole.value[0], rtol=1e-9)


@pytest.mark.parametrize(("family", "solver"), family_and_solver())
def test_all_fits_at_several_temperatures_equal_those_of_each(family, solver):
    """What is not certified yet is solved further."""
    problem, temperatures = prepared(FAMILIES[family], gaussian(n_samples=60)), [3.0, 2.0]
    points = Points.of_fits([problem.start(temperature) for temperature in temperatures], temperatures)
    chosen, tol = SOLVERS[solver](), 1e-5
    memory = chosen.new_memory(problem)
    solution = chosen.solve(problem, points, Accuracy(tol, 1000, certify=False), memory)
    assert solution.converged.all()
    expected = [minimize(problem, solver, temperature, tol=tol).value for temperature in temperatures]
    np.testing.assert_allclose(solution.value, np.concatenate(expected), rtol=1e-5)
    finals = solution.parameters[points.fits == 0]
    finals = solve_final(chosen, problem, finals, temperatures, tol=tol, max_iter=1000, memory=memory)
    assert finals.is_certified.all()
    np.testing.assert_allclose(finals.value, [values[0] for values in expected], rtol=1e-7)


# --- scaled conjugate gradient ----------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [20.0, 0.3])
@pytest.mark.parametrize("family", ["inner_product", "distance", "literal_distance", "radial"])
def test_scaled_conjugate_gradient_takes_the_steps_of_netlab(family, temperature):
    n_iterations = 12
    problem = prepared(FAMILIES[family], gaussian(n_samples=60))
    start = problem.start(temperature)
    expected = [
        oracles.scaled_conjugate_gradient(one_fit(problem, fit, temperature), start[fit], n_iterations)
        for fit in range(problem.n_fits)
    ]
    for done in range(1, n_iterations + 1):
        solution = minimize(problem, "scg", temperature, tol=1e-300, max_iter=done)
        for fit in range(problem.n_fits):
            point, value = expected[fit][done - 1]
            np.testing.assert_allclose(solution.parameters[fit], point, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(solution.value[fit], value, rtol=1e-10)


def one_fit(problem, fit, temperature):
    def value_and_gradient(point):
        value, gradient, _ = problem.objective(point[None], temperature, np.array([fit]))
        return value[0], gradient[0]

    return value_and_gradient


class Valley:
    """Rosenbrock's valley, one start per fit: steps fail, overshoot and are too short."""

    n_fits, place = 12, HOST
    has_certificate = False

    def entropy_at(self, parameters, value, gradient, temperature, fits):
        return np.full(len(value), np.nan)

    def objective(self, parameters, temperature, fits=slice(None)):
        across, along = parameters[:, 1] - parameters[:, 0] ** 2, 1 - parameters[:, 0]
        gradient = np.column_stack([-400 * across * parameters[:, 0] - 2 * along, 200 * across])
        return 100 * across**2 + along**2, gradient, gradient

    def certificate(self, gradient, value, temperature, fits):
        return np.zeros(len(value))

    def gradient_noise(self):
        return 0.0


def test_scaled_conjugate_gradient_takes_the_steps_of_netlab_in_a_curved_valley():
    problem = Valley()
    start = np.random.default_rng(1).uniform(-2, 2, size=(12, 2))
    expected = [oracles.scaled_conjugate_gradient(one_fit(problem, fit, 1.0), start[fit], 20) for fit in range(12)]
    values = np.array([[value for _, value in visited] for visited in expected])
    assert (np.diff(values) == 0).any(), "no step failed: the valley is too gentle for this test"
    for done in range(1, 21):
        solution = minimize(problem, "scg", 1.0, start=start, tol=1e-300, max_iter=done)
        for fit in range(12):
            np.testing.assert_allclose(solution.parameters[fit], expected[fit][done - 1][0], rtol=1e-5)


def test_scaled_conjugate_gradient_restarts_after_as_many_successful_steps_as_parameters():
    """Two classes and few features: with few parameters, the restart is among the first dozen iterations."""
    problem = prepared(InnerProduct(fit_intercept=False), two_classes(n_features=4))
    assert problem.start(0.1).shape[1] == 4
    visited = oracles.scaled_conjugate_gradient(one_fit(problem, 0, 0.1), problem.start(0.1)[0], 9)
    for done, (point, _) in enumerate(visited, start=1):
        solution = minimize(problem, "scg", 0.1, tol=1e-300, max_iter=done)
        np.testing.assert_allclose(solution.parameters[0], point, rtol=1e-6, atol=1e-10)


# --- memory carried over temperatures ---------------------------------------------------------------


def test_memory_carried_over_temperatures_gives_the_answer_of_a_cold_start():
    problem = prepared(InnerProduct(), gaussian())
    solver = LBFGS()
    memory = solver.new_memory(problem)
    point = problem.start(1.0)
    for temperature in np.geomspace(10, 1e-3, 9):
        carried = solve_fits(solver, problem, point, temperature, tol=1e-9, max_iter=2000, memory=memory)
        assert carried.converged.all()
        point = carried.parameters
        cold = solve(problem, temperature, tol=1e-9)
        np.testing.assert_allclose(carried.value, cold.value, rtol=1e-10)
        first, second = (problem.report(solution.parameters, temperature)["coef"] for solution in (carried, cold))
        np.testing.assert_allclose(first, second, atol=1e-5 * np.abs(second).max())


def test_memory_carried_over_temperatures_saves_iterations():
    problem = prepared(InnerProduct(), gaussian())
    solver = LBFGS()
    memory = solver.new_memory(problem)
    settings = {"tol": 1e-8, "max_iter": 2000}
    first = solve_fits(solver, problem, problem.start(0.1), 0.1, memory=memory, **settings)
    carried = solve_fits(solver, problem, first.parameters, 0.05, memory=memory, **settings)
    forgetful = solve_fits(solver, problem, first.parameters, 0.05, **settings)
    assert carried.n_iter.sum() < forgetful.n_iter.sum()


@pytest.mark.parametrize("family", ["distance", "radial"])
def test_memory_is_cleared_if_the_loss_depends_on_the_temperature(family):
    problem = prepared(FAMILIES[family], gaussian())
    solver = LBFGS()
    memory = solver.new_memory(problem)
    solve_fits(solver, problem, problem.start(5.0), 5.0, tol=1e-6, max_iter=500, memory=memory)
    carried = solve_fits(solver, problem, problem.start(1.0), 1.0, tol=1e-6, max_iter=500, memory=memory)
    fresh = minimize(problem, "lbfgs", 1.0, tol=1e-6, max_iter=500)
    np.testing.assert_array_equal(carried.parameters, fresh.parameters)


def test_what_was_learned_at_a_much_lower_temperature_is_not_used():
    """A Hessian of nearly hard posteriors would make steps far too long at a high temperature."""
    problem, solver = prepared(InnerProduct(), gaussian(400, 20)), LBFGS()
    hot, cold, options = np.array([8.0, 5.0]), 0.005, {"tol": 1e-6, "max_iter": 500}
    starts, memory = np.repeat(problem.start(8.0)[:1], 2, axis=0), solver.new_memory(problem)
    point = solve_fits(solver, problem, problem.start(cold), cold, **options, memory=memory).parameters[0]
    memory.learn(WHOLE, problem, point, cold)
    n_pairs = memory.pairs.count.copy()
    solution = solve_final(solver, problem, starts, hot, **options, memory=memory)
    assert solution.converged.all()
    for position in range(2):  # one by one, since they share no information
        afresh = solve_final(solver, problem, starts[[position]], hot[[position]], **options)
        assert solution.n_iter[position] <= afresh.n_iter[0] + POINTS_TOGETHER
    np.testing.assert_array_equal(memory.pairs.count, n_pairs)
    near = solve_final(solver, problem, starts, hot / 400, **options, memory=memory)
    assert near.converged.all()
    assert memory.pairs.count[0] > n_pairs[0]


@pytest.mark.parametrize("memory_size", [1, 3, 30])
def test_any_memory_size_reaches_the_minimum(memory_size):
    problem = prepared(InnerProduct(), gaussian())
    expected = solve(problem, 0.05)
    np.testing.assert_allclose(solve(problem, 0.05, LBFGS(memory_size=memory_size)).value, expected.value, rtol=1e-10)


def test_without_a_penalty_every_step_is_evaluated():
    """Soft means of separable classes without anchor have hardly any curvature: a step can be arbitrarily long."""
    table = gaussian(n_samples=40, separation=8.0)
    problem = prepared(Distance(anchor=0), table, n_folds=5)
    solver = LBFGS()
    memory, start = solver.new_memory(problem), problem.start(100.0)
    for temperature in np.geomspace(100.0, 1e-4, 30):
        solution = solve_fits(solver, problem, start, temperature, tol=1e-4, max_iter=11, memory=memory)
        value, _, _ = problem.objective(solution.parameters, temperature)
        np.testing.assert_allclose(value, solution.value, rtol=1e-9, atol=1e-300)
        assert np.abs(solution.parameters).max() < 1e12
        start = carried_over(problem, solution.parameters, temperature, 0.6 * temperature)


def test_a_start_above_a_hotter_solution_is_replaced_by_it():
    """Q / T can only decrease from there; outlying samples can make predicted starts worse than any."""
    problem = InnerProduct().prepare(stack_of(gaussian(), fold_masks(len(gaussian().y), 2)))
    temperatures, found = ([1.0], [0.5]), {}
    for start in ("near", "far"):
        plan = Plan.of(problem, LBFGS(), 1e-6, 500, is_given=True)
        hot = plan.solve(Points.of_fits([problem.start(1.0)], temperatures[0]))
        away = 1e3 * np.random.default_rng(0).normal(size=hot.parameters.shape) * (start == "far")
        starts = [hot.parameters + away]
        found[start] = plan.solve(Points.of_fits(starts, temperatures[1], (hot.parameters, hot.value)))
    assert found["far"].converged.all() and found["far"].n_iter.max() <= found["near"].n_iter.max() + 3
    np.testing.assert_allclose(found["far"].value, found["near"].value, rtol=1e-6)
