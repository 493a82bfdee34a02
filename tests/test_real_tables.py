"""Real tables that are difficult to fit, skipped if the data folder is absent."""

import warnings

import numpy as np
import pytest

from annealed import AnnealedLDA, AnnealedLogisticRegression
from annealed.datasets import data_home, load_table

TABLES = ["gene_golub", "hypothyroid", "text_pcmac", "vowel", "warpAR10P", "page_blocks"]

pytestmark = pytest.mark.skipif(
    data_home() is None, reason="no data folder: set ANNEALED_DATA to the folder that holds suite/"
)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
@pytest.mark.parametrize("name", TABLES)
def test_every_temperature_converges_without_a_warning_and_beats_the_prior(estimator, name):
    table = load_table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator().fit(table.X, table.y)
    assert model.path_.converged.all()
    assert model.path_.gradient_norm.max() <= model.tol
    assert np.isfinite(model.coef_).all()
    prior = np.bincount(table.y) / len(table.y)
    prior_loss = -np.sum(prior[prior > 0] * np.log(prior[prior > 0]))
    assert -model.path_.validation_score[model.path_.best_index].mean() < 0.9 * prior_loss
