"""The search over rounds and penalties: sharpness of annealed prototypes, folds."""

import warnings

import numpy as np
import pytest

from annealed.datasets import make_mixed_strips
from annealed.potts import LabelledRows, plus_plus_starts
from annealed.potts.refinement import calibrated
from annealed.potts.search import SHARPER, _loss, _sharpened, make_folds


class Fold:
    def __init__(self, seed):
        X, y = make_mixed_strips(300, random_state=seed)
        rows = LabelledRows((X - X.mean(axis=0)) / X.std(axis=0), y, np.ones(len(y)), 2)
        self.train, self.test = rows.take(np.arange(0, 300, 2)), rows.take(np.arange(1, 300, 2))


@pytest.mark.parametrize("n_each", [1, 2, 6])
def test_the_sharpness_has_the_lowest_loss_of_all_candidates(n_each):
    ladder = [Fold(0), Fold(1)]
    numbers = np.full(2, n_each)
    states = [next(plus_plus_starts(fold.train, numbers, 0.3, np.random.RandomState(0))) for fold in ladder]

    def total(sharpness):
        return sum(
            _loss(calibrated(fold.train, state, sharpness), fold.test)
            for fold, state in zip(ladder, states, strict=True)
        )

    best = min([1.0, *SHARPER, *(1 / factor for factor in SHARPER)], key=total)
    starts = [(fold.train, state) for fold, state in zip(ladder, states, strict=True)]
    sharpness, posteriors = _sharpened(ladder, starts)
    assert sharpness == best
    losses = [_loss(posterior, fold.test) for posterior, fold in zip(posteriors, ladder, strict=True)]
    assert sum(losses) == total(best)


def test_folds_of_rare_classes_neither_warn_nor_change_warning_filters():
    rows = LabelledRows(np.arange(8.0)[:, None], np.arange(8) % 4, np.ones(8), n_classes=4)
    before = warnings.filters[:]
    with warnings.catch_warnings(record=True) as caught:
        assert len(make_folds(rows, 0)) == 2
    assert not caught and warnings.filters == before
