"""Comparisons on tables with sample weights: fits and scores use them."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

pandas = pytest.importorskip("pandas")
from annealed.app.comparison import CANDIDATES, compare, fit_table, table_splits  # noqa: E402
from annealed.app.tables import label_table  # noqa: E402
from annealed.errors import InputError  # noqa: E402


def flowers(weights):
    frame = load_iris(as_frame=True).frame.rename(columns={"target": "species"})
    return label_table(frame.assign(trust=weights), "species", "trust")


def test_weights_affect_the_fits_and_the_scores(monkeypatch):
    monkeypatch.setattr(
        "annealed.app.comparison.CANDIDATES", {name: CANDIDATES[name] for name in ("class-shares", "sklearn-lda")}
    )
    table = flowers(np.random.default_rng(0).uniform(0.1, 5, 150))
    shares, lda = compare(table, 3)
    for fold, (train, test) in enumerate(table_splits(table.labels, 3)):
        class_weights = np.bincount(table.labels[train], table.weights[train])
        posterior = class_weights / class_weights.sum()
        weights, labels = table.weights[test] / table.weights[test].sum(), table.labels[test]
        assert shares.errors[fold] == pytest.approx(weights @ (labels != posterior.argmax()))
        assert shares.log_losses[fold] == pytest.approx(weights @ -np.log(posterior[labels]))
    assert lda.failure == "it does not support sample weights"
    with pytest.raises(InputError, match="'sklearn-lda' cannot be fitted on this table: it does not support sample"):
        fit_table(table, "sklearn-lda")


@pytest.mark.parametrize("name", ["logistic", "sklearn-logistic"])
def test_weights_that_are_shares_are_rescaled(name):
    one, share = fit_table(flowers(1.0), name), fit_table(flowers(1 / 150), name)
    features = load_iris(as_frame=True).frame
    np.testing.assert_allclose(one.predict(features), share.predict(features), atol=1e-6)


def test_rows_of_weight_zero_are_left_out():
    """Also of the medians, the scales and the kinds of columns."""
    outlier = pandas.DataFrame({"size": [1e6] * 3, "kind": ["b"] * 3, "trust": 0})
    frame = pandas.DataFrame({"size": [1.0, 2, 4, 5, None] * 9, "kind": ["a", "a", "b", "b", "b"] * 9, "trust": 1})
    with_outlier = pandas.concat([outlier, frame])
    one, other = (fit_table(label_table(table, "kind", "trust"), "logistic") for table in (frame, with_outlier))
    assert one.predict(frame).equals(other.predict(frame))
    assert one.facts["rows"] == other.facts["rows"] == 45
