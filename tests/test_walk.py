"""What is filled between the nodes of a walk: in which order, and from which points."""

import numpy as np
import pytest
from problems import gaussian, stack_of

from annealed import InnerProductADA
from annealed.objectives import InnerProduct
from annealed.solvers import LBFGS
from annealed.walk import Judgement, Step, _Walk

FAR, NEAR = 0.9, 0.3  # of log temperature, between nodes


class FewFits:
    """As much of a problem as a walk needs to be made."""

    n_fits = 3


def course(place):
    """Parameters (n_fits, 2) on a curve that no polynomial of few nodes follows."""
    return np.exp(np.multiply.outer([2.0, 1.5, 1.0], [place, -place]))


def step(place, is_node=True, n_iter=1, n_fits=3):
    return Step(np.exp(place), 1.0, 0.0, n_iter, True, is_node, Judgement(), course(place)[:n_fits], 0.0)


def walk_of(spacing, n_nodes=8):
    walk = _Walk(FewFits(), LBFGS(), None, {})
    walk.nodes = [step(-spacing * number) for number in range(n_nodes)]
    return walk


def waiting(*places):
    return [(float(np.exp(place)), True) for place in places]


def test_the_middle_of_each_gap_is_filled_before_what_lies_beside_it():
    places = [-0.2, -0.44, -0.7, -1.1, -1.36, -1.6]
    middles, rest = walk_of(FAR)._waves(waiting(*places))
    assert [temperature for temperature, _ in middles] == pytest.approx(np.exp([-0.44, -1.36]))
    assert sorted([*middles, *rest]) == sorted(waiting(*places))
    assert walk_of(FAR)._waves([]) == ([], [])


def test_the_final_fit_is_interpolated_from_fillings_too_and_the_folds_from_nodes():
    place = -3 * FAR - 0.2
    without = walk_of(FAR)._between(np.exp(place))
    walk = walk_of(FAR)
    walk.fillings = [step(-3 * FAR - 0.45, is_node=False, n_fits=1), step(-2 * FAR - 0.45, is_node=False, n_fits=1)]
    point = walk._between(np.exp(place))
    np.testing.assert_array_equal(point[1:], without[1:])
    assert np.abs(point[0] - course(place)[0]).max() < 0.2 * np.abs(without[0] - course(place)[0]).max()


def test_a_filling_that_was_certified_as_it_lay_adds_no_point():
    walk = walk_of(NEAR)
    without = walk._between(np.exp(-0.7))
    walk.fillings = [step(-0.75, is_node=False, n_iter=0, n_fits=1)]
    np.testing.assert_array_equal(walk._between(np.exp(-0.7)), without)


def test_most_temperatures_of_a_fine_ladder_are_certified_as_they_lie():
    table = gaussian()
    ladder = 4.0 * 0.95 ** np.arange(120)
    path = InnerProductADA(schedule=ladder, cv=2).fit(table.X, table.y).path_
    assert path.converged.all()
    assert np.mean(path.n_iter[~path.is_node] == 0) > 0.7


def test_several_temperatures_are_looked_at_together_and_solved_where_they_need_it():
    problem = InnerProduct().prepare(stack_of(gaussian()))
    solver, temperatures = LBFGS(), np.array([1.0, 0.5, 0.25])
    options = {"tol": 1e-5, "max_iter": 500, "memory": solver.new_memory(problem)}
    alone = [solver.minimize(problem, problem.start(own), own, final_only=True, **options) for own in temperatures]
    points = np.stack([own.parameters[0] for own in alone])
    points[1, 0] += 0.1
    together = solver.fill(problem, points, temperatures, **options)
    assert together.converged.all()
    assert (together.n_iter > 0).tolist() == [False, True, False]
    np.testing.assert_allclose(together.value, [own.value[0] for own in alone], rtol=1e-6)
    np.testing.assert_array_equal(together.parameters[::2], points[::2])
