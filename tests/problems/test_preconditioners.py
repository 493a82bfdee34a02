"""Which part of a Hessian is computed for the preconditioner, and when."""

from types import SimpleNamespace

import numpy as np
import pytest
from small_problems import fold_masks, stack_of

from annealed.datasets import make_gaussian_classes
from annealed.problems import InnerProduct, hessian_sample
from annealed.solvers.pairs import CLASSES, KINDS, WHOLE, PathMemory


def many_classes(n_classes=20, n_features=30):
    table = make_gaussian_classes(600, n_features, n_classes, random_state=0)
    return InnerProduct().prepare(stack_of(table, fold_masks(600), n_classes=n_classes))


def test_few_classes_have_no_class_blocks():
    for n_classes in (2, 3):
        problem = many_classes(n_classes)
        assert problem.preconditioners.class_cost() == np.inf and problem.preconditioners.cost(0) < np.inf


def test_blocks_of_many_classes_cost_a_fraction_of_the_full_hessian():
    problem = many_classes()
    whole = problem.preconditioners.cost(0)
    assert problem.preconditioners.class_cost() < 0.5 * whole < np.inf
    assert whole == problem.preconditioners.cost(5)  # all levels are the same


def test_with_too_many_coordinates_only_class_blocks_are_learned(monkeypatch):
    monkeypatch.setattr(hessian_sample, "MOST_VALUES", 300**2)
    problem = many_classes()
    assert problem.preconditioners.class_cost() < np.inf and problem.preconditioners.cost(0) == np.inf


def test_class_blocks_have_leading_coordinates_if_all_would_take_too_much_memory(monkeypatch):
    monkeypatch.setattr(hessian_sample, "MOST_VALUES", 20 * 11**2)
    problem = many_classes()
    learned = problem.preconditioners.learn_classes(problem.start(1.0)[0], 1.0)
    assert learned.blocks.shape == (20, 11, 11)
    vectors = np.random.RandomState(1).standard_normal((problem.n_fits, problem.scores.table.n_parameters))
    plain = problem.precondition(vectors, 0.05, slice(None)).reshape(-1, 20, problem.scores.table.width)
    better = problem.precondition(vectors, 0.05, slice(None), learned).reshape(-1, 20, problem.scores.table.width)
    np.testing.assert_array_equal(better[..., :20], plain[..., :20])
    assert np.abs(better[..., 20:] - plain[..., 20:]).min() > 0


class Costs:
    """Preconditioners with given costs, in passes, of the Hessian and of the class blocks."""

    def __init__(self, whole, classes):
        self.whole, self.classes = whole, classes

    def cost(self, level):
        return self.whole

    def class_cost(self):
        return self.classes

    def learn(self, parameters, temperature, level):
        return WHOLE

    def learn_classes(self, parameters, temperature):
        return CLASSES


@pytest.mark.parametrize(
    ("whole", "classes", "expected"),
    [
        (9.0, 1.0, [(1.0, CLASSES), (2.0, CLASSES), (3.0, CLASSES), (9.0, WHOLE), (18.0, WHOLE)]),
        (2.0, np.inf, [(2.0, WHOLE), (4.0, WHOLE), (6.0, WHOLE)]),
        (0.1, np.inf, [(0.25, WHOLE), (0.5, WHOLE)]),
        (np.inf, 3.0, [(3.0, CLASSES)]),
        (np.inf, np.inf, []),
    ],
)
def test_each_kind_is_learned_after_steps_of_the_same_cost(whole, classes, expected):
    problem, memory, seen = SimpleNamespace(preconditioners=Costs(whole, classes)), PathMemory(6, 3), []
    for step in range(1, 73):
        memory.spend(0.25)
        kind = memory.kind_due(problem, dict.fromkeys(KINDS, 1))
        if kind is not None:
            memory.learn(kind, problem, None, 1.0)
            seen.append((step / 4, kind))
            assert memory.learned == kind
    assert [kind for kind in expected if kind not in seen] == []
    after_whole = [kind for step, kind in seen if step > whole]
    assert set(after_whole) <= {WHOLE}


def test_one_pass_a_temperature_is_not_counted():
    memory = PathMemory(6, 3)
    memory.spend(0.5)
    memory.spend(-1)
    assert set(memory.n_passes.values()) == {0.0}
    memory.spend(2.5)
    memory.spend(-1)
    assert set(memory.n_passes.values()) == {1.5}
