"""AnnealedLDA: its limit LDA, the form of the paper, and data on which LDA fails."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from small_problems import sparse_rows

from annealed import AnnealedLDA, CGrid, ExponentialSchedule

X, y = load_iris(return_X_y=True)


def lda_posterior(X, y, priors):
    """Linear discriminant analysis by its formula, pooled covariance with 1/n."""
    classes = np.unique(y)
    means = np.stack([X[y == label].mean(axis=0) for label in classes])
    centred = X - means[np.searchsorted(classes, y)]
    precision = np.linalg.inv(centred.T @ centred / len(X))
    offsets = X[:, None] - means
    scores = -0.5 * np.einsum("ncd,de,nce->nc", offsets, precision, offsets) + np.log(priors)
    posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
    return posterior / posterior.sum(axis=1, keepdims=True)


def test_strong_anchor_at_temperature_two_is_lda():
    labels = y[:120]
    model = AnnealedLDA(anchor=1e9, temperature=2.0, shrinkage=0.0).fit(X[:120], labels)
    priors = np.bincount(labels) / len(labels)
    np.testing.assert_allclose(model.predict_proba(X[:120]), lda_posterior(X[:120], labels, priors), atol=1e-6)
    np.testing.assert_allclose(model.means_, [X[:120][labels == k].mean(axis=0) for k in range(3)], atol=1e-6)


def test_default_predicts_like_lda_with_a_similar_log_loss():
    for load in (load_iris, load_wine):
        features, labels = load(return_X_y=True)
        model = AnnealedLDA().fit(features, labels)
        oracle = LinearDiscriminantAnalysis().fit(features, labels)
        assert np.mean(model.predict(features) == oracle.predict(features)) > 0.95
        assert log_loss(labels, model.predict_proba(features)) < 2 * log_loss(labels, oracle.predict_proba(features))


def clustered(n_samples, seed=0):
    """Three Gaussian classes in six columns, on which LDA errs 3 %."""
    corners = np.random.default_rng(0).normal(size=(3, 6)) * np.sqrt(2)
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=n_samples)
    return corners[labels] + generator.normal(size=(n_samples, 6)), labels


@pytest.mark.parametrize("covariance", ["pooled", "diagonal"])
@pytest.mark.parametrize("n_unusual", [1, 5])
def test_a_few_outlying_values_of_a_column_leave_predictions_like_those_of_lda(covariance, n_unusual):
    """Whatever the fold that leaves out the farthest: once a temperature of 206 was chosen, and 67 % were wrong."""
    (features, labels), (new, truth) = clustered(232, 1), clustered(1000, 2)
    features, new = (np.column_stack([rows, np.zeros(len(rows))]) for rows in (features, new))
    features[5, 0] = -999.0
    features[20 : 20 + n_unusual, 6] = 10.0 ** np.arange(n_unusual)
    model = AnnealedLDA(covariance=covariance).fit(features, labels)
    oracle = LinearDiscriminantAnalysis().fit(features, labels)
    assert model.score(new, truth) > oracle.score(new, truth) - 0.02
    assert log_loss(truth, model.predict_proba(new)) < 1.2 * log_loss(truth, oracle.predict_proba(new))


@pytest.mark.parametrize("covariance", ["pooled", "total", "diagonal"])
@pytest.mark.parametrize("shrinkage", ["oas", "ledoit_wolf"])
@pytest.mark.parametrize("n_samples", [30, 232])
def test_constant_columns_change_nothing(covariance, shrinkage, n_samples):
    features, labels = clustered(n_samples)
    longer = np.column_stack([features, np.tile(np.r_[np.zeros(30), 1e3 * np.arange(10)], (n_samples, 1))])
    model = AnnealedLDA(covariance=covariance, shrinkage=shrinkage, tol=1e-8)
    expected = model.fit(features, labels).predict_proba(features)
    tolerance = 1e-8 if n_samples == 232 or covariance == "diagonal" else 1e-6  # in the span of the samples
    np.testing.assert_allclose(model.fit(longer, labels).predict_proba(longer), expected, atol=tolerance)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("covariance", ["auto", "diagonal"])
def test_random_tables_with_spoilt_columns_are_predicted_as_well_as_by_lda(seed, covariance):
    """Nearly constant columns, constant ones, and sentinels, of any size, in any number."""
    (features, labels), (new, truth) = clustered(200, 10 + seed), clustered(2000, 20 + seed)
    generator = np.random.default_rng(seed)
    n_spoilt = generator.integers(1, 6)
    rare = np.zeros((200, n_spoilt))
    for column in rare.T:
        column[generator.choice(200, generator.integers(1, 8), replace=False)] = np.exp(5 * generator.normal())
    constant = np.tile(1e3 * generator.normal(size=generator.integers(0, 50)), (200, 1))
    features[generator.choice(200, 2, replace=False), generator.integers(6, size=2)] = -999
    features = np.column_stack([features, rare, constant])
    new = np.column_stack([new, np.zeros((2000, n_spoilt)), np.tile(constant[:1], (2000, 1))])
    model, oracle = (
        each.fit(features, labels) for each in (AnnealedLDA(covariance=covariance), LinearDiscriminantAnalysis())
    )
    assert model.score(new, truth) > oracle.score(new, truth) - 0.02
    assert log_loss(truth, model.predict_proba(new)) < 1.05 * log_loss(truth, oracle.predict_proba(new))


@pytest.mark.parametrize(("anchor", "most"), [(1e-300, 15), (1e-3, 15), (1e10, 5), (1e300, 5)])
def test_an_extreme_anchor_takes_few_iterations(anchor, most):
    features, labels = clustered(40)
    path = AnnealedLDA(anchor=anchor).fit(features, labels).path_
    assert path.n_iter.max() <= most
    assert (anchor < 1) or path.converged.all()


@pytest.mark.parametrize("anchor", [0.011, 0.03, 0.1])
@pytest.mark.parametrize("covariance", ["pooled", "diagonal", "identity"])
@pytest.mark.parametrize("distance", [1, 10])
def test_a_path_ends_by_its_budget_whatever_the_anchor(anchor, covariance, distance):
    """Two temperatures that have spent it end the path; a weak anchor and separable classes are the hardest."""
    features, labels = clustered(40)
    features += distance * np.eye(3, 6)[labels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = AnnealedLDA(anchor=anchor, covariance=covariance).fit(features, labels).path_
    assert path.n_iter.sum() <= 10_000  # ten times the budget of a temperature; there may be eighty temperatures
    has_spent = ~path.converged & (path.n_iter >= 100)
    assert not (has_spent[1:] & has_spent[:-1])[:-1].any()  # two in a row are the last


def test_random_starts_repeat_and_leave_numpys_generator_alone():
    model = AnnealedLDA(init="random", anchor=0, inner_iterations=1, schedule=[1.0], selection="last")
    state = np.random.mtrand._rand.get_state()[1].copy()
    np.testing.assert_array_equal(model.fit(X, y).means_, model.fit(X, y).means_)
    np.testing.assert_array_equal(np.random.mtrand._rand.get_state()[1], state)


@pytest.mark.parametrize("solver", ["lbfgs", "scg"])
def test_without_an_anchor_all_starts_merge_if_cooled_slowly(solver):
    """Figure 1(a) of the paper: at low temperature the accuracies are the same for every start."""
    schedule = ExponentialSchedule(50.0, cooling_rate=0.9, stop=0.05)
    scores = [
        AnnealedLDA(anchor=0, init=init, solver=solver, schedule=schedule, selection="last", random_state=0)
        .fit(X, y)
        .score(X, y)
        for init in ("means", "random", "zero")
    ]
    assert min(scores) > 0.95
    assert max(scores) - min(scores) <= 0.03


def test_inner_iterations_limit_the_iterations_at_every_temperature():
    model = AnnealedLDA(anchor=0, inner_iterations=3, schedule=[10.0, 5.0, 2.0]).fit(X, y)
    assert model.path_.n_iter.max() <= 3
    default = AnnealedLDA(anchor=0, schedule=[10.0, 5.0, 2.0], tol=1e-12).fit(X, y)
    assert default.path_.n_iter.max() == 15


def test_reported_means_give_the_reported_scores():
    model = AnnealedLDA(covariance="identity", temperature=3.0, schedule=[3.0]).fit(X, y)
    distance = ((X[:, None] - model.means_) ** 2).sum(axis=2)
    logits = -distance / 3.0 + np.log(1 / 3)
    difference = logits - model.decision_function(X)
    assert np.ptp(difference, axis=1).max() < 1e-8


@pytest.mark.parametrize("covariance", ["pooled", "total", "diagonal", "identity"])
@pytest.mark.parametrize("shrinkage", ["oas", "ledoit_wolf", 0.0, 0.5])
def test_every_covariance_and_shrinkage(covariance, shrinkage):
    model = AnnealedLDA(covariance=covariance, shrinkage=shrinkage).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.path_.converged.all()


@pytest.mark.parametrize("covariance", ["pooled", "diagonal", "identity", "total"])
def test_sparse_equals_dense(covariance):
    dense = AnnealedLDA(covariance=covariance).fit(X, y)
    model = AnnealedLDA(covariance=covariance).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-7)


def test_wide_sparse_is_never_densified(monkeypatch):
    X_wide = sparse_rows(90, 3000, density=0.01)
    labels = np.arange(90) % 3
    for kind in (sparse.csr_array, sparse.csr_matrix):
        whole = kind.toarray

        def guarded(self, *args, whole=whole, **kwargs):
            assert self.shape[0] * self.shape[1] < 90 * 3000, "X was densified"
            return whole(self, *args, **kwargs)

        monkeypatch.setattr(kind, "toarray", guarded)
        monkeypatch.setattr(kind, "todense", guarded)
    for covariance in ("pooled", "diagonal"):
        model = AnnealedLDA(covariance=covariance, schedule=[50.0, 20.0]).fit(X_wide, labels)
        assert model.coef_.shape == (3, 3000)


def test_has_no_C():
    """Its penalty pulls class means, not coefficients."""
    model = AnnealedLDA(schedule=[4.0, 2.0]).fit(X, y)
    assert not hasattr(model, "C_")
    assert model.path_.C is None
    assert " C " not in repr(model.path_)
    with pytest.raises(ValueError, match="temperature must be given: C is not defined for AnnealedLDA .* Got C=1.0."):
        model.at(C=1.0)


def test_a_grid_of_C_is_refused():
    with pytest.raises(ValueError, match=r"schedule must be given in temperatures .* Got CGrid\(Cs=\[0.1, 1.0\]\)"):
        AnnealedLDA(schedule=CGrid([0.1, 1.0])).fit(X, y)


def test_singular_data():
    features, labels = load_digits(return_X_y=True)
    features = np.column_stack([features, features[:, :5]])[:200]
    model = AnnealedLDA().fit(features, labels[:200])
    assert np.isfinite(model.coef_).all()
    assert model.score(features, labels[:200]) > 0.95


@pytest.mark.parametrize("shrinkage", ["oas", "ledoit_wolf", 0.0])
@pytest.mark.parametrize("covariance", ["pooled", "total", "diagonal", "identity"])
@pytest.mark.parametrize("n_columns", [1, 2, 30])
def test_samples_equal_to_their_class_average(n_columns, covariance, shrinkage):
    """Without variance within classes, distances are in units of the features' standard deviations."""
    labels = np.repeat([0, 1], 10)
    points = np.random.RandomState(0).standard_normal((2, n_columns))
    model = AnnealedLDA(covariance=covariance, shrinkage=shrinkage).fit(points[labels], labels)
    assert model.score(points[labels], labels) == 1
    assert np.isfinite(model.predict_proba(points[labels])).all()


def test_constant_features_give_the_priors():
    labels = np.repeat([0, 1, 2], [10, 20, 30])
    model = AnnealedLDA().fit(np.full((60, 2), 3.7), labels)
    np.testing.assert_allclose(model.predict_proba(np.full((1, 2), 3.7)), [[1 / 6, 1 / 3, 1 / 2]], atol=1e-2)


def test_more_features_than_samples_equals_the_direct_computation():
    generator = np.random.RandomState(0)
    labels = np.repeat([0, 1, 2], 8)
    rows = generator.standard_normal((24, 40)) + 1.5 * np.eye(3)[labels] @ generator.standard_normal((3, 40))
    padded = np.vstack([rows, generator.standard_normal((30, 40))])
    weight = np.r_[np.ones(24), np.zeros(30)]
    settings = dict(shrinkage=0.3, temperature=5.0, schedule=[20.0, 10.0, 5.0], tol=1e-8)
    wide = AnnealedLDA(**settings).fit(rows, labels)
    tall = AnnealedLDA(**settings).fit(padded, np.r_[labels, np.zeros(30, dtype=int)], sample_weight=weight)
    np.testing.assert_allclose(wide.predict_proba(rows), tall.predict_proba(rows), atol=1e-6)
    np.testing.assert_allclose(wide.means_, tall.means_, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-6, 1e10])
def test_units_of_features_that_are_constant_in_a_fold_do_not_matter(unit):
    """Such a feature has no variance in the fold, and takes that of all samples."""
    features, labels = load_digits(return_X_y=True)
    features, labels = features[:400], labels[:400]
    rare = np.sum(features != 0, axis=0)
    assert ((rare > 0) & (rare < 5)).any()
    usual = AnnealedLDA().fit(features, labels)
    other = AnnealedLDA().fit(features * unit, labels)
    assert other.path_.converged.all()
    np.testing.assert_allclose(other.path_.temperatures, usual.path_.temperatures, rtol=1e-6)
    np.testing.assert_allclose(other.path_.validation_score, usual.path_.validation_score, rtol=1e-4)
    np.testing.assert_allclose(other.predict_proba(features * unit), usual.predict_proba(features), atol=1e-6)


@pytest.mark.parametrize("n_columns", [4, 40])
@pytest.mark.parametrize("covariance", ["pooled", "diagonal"])
def test_folds_with_one_sample_of_each_class_use_the_covariance_of_all_samples(covariance, n_columns):
    """With two samples per class, folds have no variance within classes; their posteriors must not be certain."""
    generator = np.random.default_rng(0)
    means = 6 / np.sqrt(n_columns) * generator.standard_normal((8, n_columns))
    labels, unseen = np.repeat(np.arange(8), 2), np.repeat(np.arange(8), 40)
    rows = means[labels] + generator.standard_normal((16, n_columns))
    with pytest.warns(UserWarning, match="fewer than the 5 folds"):
        model = AnnealedLDA(covariance=covariance).fit(rows, labels)
    posterior = model.predict_proba(means[unseen] + generator.standard_normal((320, n_columns)))
    assert 0.1 < model.posterior_scale_ < 10
    assert log_loss(unseen, posterior) < 0.8


def test_samples_equal_to_their_class_average_in_very_different_units():
    corners, labels = np.array([[0.0, 0.0], [1e6, 0.0], [0.0, 1e-6]]), np.repeat([0, 1, 2], 20)
    model = AnnealedLDA().fit(corners[labels], labels)
    assert model.temperature_ < 100
    np.testing.assert_allclose(model.predict_proba(corners), np.eye(3), atol=0.05)
