"""How an estimator chooses its temperature: folds, leave-one-out, a held-out part, the last one, or a given one."""

from contextlib import nullcontext

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import accuracy_score, log_loss, make_scorer
from sklearn.model_selection import (
    GroupKFold,
    LeaveOneGroupOut,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)
from small_problems import separable

from annealed import AnnealedLDA, AnnealedLogisticRegression, ExponentialSchedule
from annealed.datasets import make_gaussian_classes
from annealed.estimators.path_fit import PathFit
from annealed.path import AdaptiveSchedule
from annealed.problems import gibbs
from annealed.validation import selection
from annealed.validation.calibration import SCALE_PRIOR, deviations, mean_margin, penalty, rescaled
from annealed.validation.selection import choose, held_out_by_fold, stratified_splits

X, y = load_iris(return_X_y=True)


def test_scores_of_folds_are_those_of_separate_fits():
    """The stack of folds against one estimator per fold, fitted on the training samples of the fold."""
    splits = list(StratifiedKFold(4, shuffle=True, random_state=1).split(X, y))
    temperatures = np.geomspace(1, 1e-3, 5)
    settings = dict(schedule=temperatures, penalty_scaling="none", calibrate=False, tol=1e-8)
    model = AnnealedLogisticRegression(cv=splits, **settings).fit(X, y)
    for fold, (train, test) in enumerate(splits):
        separate = AnnealedLogisticRegression(selection="last", **settings).fit(X[train], y[train])
        scores = [-log_loss(y[test], separate.at(temperature).predict_proba(X[test])) for temperature in temperatures]
        np.testing.assert_allclose(model.path_.validation_score[:, fold], scores, rtol=1e-5)


@pytest.mark.parametrize(
    "model", [AnnealedLogisticRegression(penalty_scaling="none"), AnnealedLDA(shrinkage=0)], ids=["inner", "distance"]
)
def test_a_sample_repeated_in_a_training_part_counts_repeatedly(model):
    """Without shrinkage, which AnnealedLDA measures in units of all samples, whatever a fold leaves out."""
    drawn = np.random.RandomState(0).randint(0, len(y), len(y))
    rest = np.setdiff1d(np.arange(len(y)), drawn)
    settings = dict(schedule=[3.0, 1.0, 0.1], calibrate=False, tol=1e-8)
    fold = clone(model).set_params(cv=[(drawn, rest)], **settings).fit(X, y)
    separate = clone(model).set_params(selection="holdout", **settings)
    separate.fit(X[drawn], y[drawn], X_val=X[rest], y_val=y[rest])
    np.testing.assert_allclose(fold.path_.validation_score, separate.path_.validation_score, rtol=1e-5)


def test_folds_are_solved_where_nearly_all_samples_are_certain():
    """There the Hessian of the final fit predicts too small a decrease for a fold. A fold that stops because of it
    validates better than its minimum.
    """
    X, y = (part[:400] for part in load_digits(return_X_y=True))
    settings = dict(schedule=np.geomspace(1, 1e-6, 16), penalty_scaling="standardize")
    rough, exact = (
        AnnealedLogisticRegression(tol=tol, **settings).fit(X, y).path_.validation_score for tol in (1e-4, 1e-8)
    )
    np.testing.assert_allclose(rough.mean(axis=1), exact.mean(axis=1), rtol=0.015)


@pytest.mark.parametrize("calibrate", [True, False])
def test_validating_temperatures_together_gives_the_scores_of_validating_each_separately(calibrate, monkeypatch):
    together = AnnealedLogisticRegression(calibrate=calibrate).fit(X, y).path_
    monkeypatch.setattr(selection, "BLOCK_BYTES", 0)
    separate = AnnealedLogisticRegression(calibrate=calibrate).fit(X, y).path_
    assert not together.is_node.all()
    np.testing.assert_allclose(together.validation_score, separate.validation_score, rtol=1e-4)
    np.testing.assert_allclose(together.posterior_scale, separate.posterior_scale, rtol=1e-3)
    assert together.best_index == separate.best_index


def test_one_standard_error_chooses_the_highest_temperature_within_an_error_of_the_best():
    best = AnnealedLogisticRegression(calibrate=False).fit(X, y)
    mean = best.path_.validation_score.mean(axis=1)
    assert best.path_.best_index == np.argmax(mean)
    careful = AnnealedLogisticRegression(calibrate=False, rule="one_standard_error").fit(X, y)
    assert careful.temperature_ > best.temperature_
    scores = careful.path_.validation_score
    error = scores[np.argmax(mean)].std(ddof=1) / np.sqrt(scores.shape[1])
    assert mean[careful.path_.best_index] >= mean.max() - error
    assert mean[careful.path_.best_index - 1] < mean.max() - error


@pytest.mark.parametrize(
    ("settings", "held_out"),
    [
        ({"cv": [(np.arange(0, 150, 2), np.arange(1, 150, 2))]}, {}),
        ({"selection": "holdout"}, {}),
        ({"selection": "holdout"}, {"X_val": X[1::2], "y_val": y[1::2]}),
    ],
)
def test_one_standard_error_with_a_single_fold_is_refused_before_any_fit(settings, held_out, monkeypatch):
    monkeypatch.setattr(PathFit, "_solve_path", lambda *_: pytest.fail("a path was computed"))
    with pytest.raises(ValueError, match='several folds, for a standard error. Got 1. Set selection="cv" and let cv'):
        AnnealedLogisticRegression(rule="one_standard_error", **settings).fit(X, y, **held_out)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_brier_score", make_scorer(accuracy_score)])
def test_any_scorer_of_scikit_learn_chooses_the_temperature(scoring):
    if scoring == "neg_brier_score":
        labels = y == 2
    else:
        labels = y
    model = AnnealedLogisticRegression(scoring=scoring, schedule=np.geomspace(1, 1e-3, 6)).fit(X, labels)
    assert model.path_.score_name == ("accuracy_score" if callable(scoring) else scoring)
    assert model.path_.best_index == np.argmax(model.path_.validation_score.mean(axis=1))
    chosen = sklearn.metrics.check_scoring(model, scoring=scoring)(model.at(model.temperature_), X, labels)
    uncalibrated = model.path_.train_score[model.path_.best_index]
    assert chosen == pytest.approx(uncalibrated)


def test_after_holdout_the_final_fit_has_all_samples():
    model = AnnealedLogisticRegression(selection="holdout", schedule=[0.1, 0.01], random_state=0).fit(X, y)
    assert model.path_.validation_score.shape == (2, 1)
    last = AnnealedLogisticRegression(selection="last", schedule=[0.1, 0.01]).fit(X, y)
    np.testing.assert_allclose(model.path_.coef, last.path_.coef, atol=1e-5)


def test_a_given_validation_set_is_scored():
    train, validation = slice(None, None, 2), slice(1, None, 2)
    model = AnnealedLogisticRegression(selection="holdout", calibrate=False).fit(
        X[train], y[train], X_val=X[validation], y_val=y[validation]
    )
    expected = -log_loss(y[validation], model.predict_proba(X[validation]))
    assert model.path_.validation_score[model.path_.best_index, 0] == pytest.approx(expected)
    assert model.path_.validation_score.shape[1] == 1


def test_a_schedule_is_followed_to_its_last_or_to_a_given_temperature():
    schedule = ExponentialSchedule(1.0, cooling_rate=0.5, stop=0.1)
    last = AnnealedLogisticRegression(schedule=schedule, selection="last").fit(X, y)
    np.testing.assert_allclose(last.path_.temperatures, [1.0, 0.5, 0.25, 0.125])
    assert last.temperature_ == 0.125
    assert last.posterior_scale_ == 1.0
    assert last.path_.validation_score is None
    fixed = AnnealedLogisticRegression(schedule=schedule, temperature=0.2).fit(X, y)
    np.testing.assert_allclose(fixed.path_.temperatures, [1.0, 0.5, 0.25, 0.2])
    assert fixed.temperature_ == 0.2


@pytest.mark.parametrize("chosen_by", [{"selection": "last"}, {"temperature": 0.2}], ids=str)
def test_without_validation_the_scorer_is_not_used_and_not_named(chosen_by):
    settings = dict(schedule=[1.0, 0.1], **chosen_by)
    scorers = ("accuracy", "neg_log_loss")
    scored, plain = (AnnealedLogisticRegression(scoring=scoring, **settings).fit(X, y) for scoring in scorers)
    assert scored.path_.score_name == "neg_log_loss"
    np.testing.assert_array_equal(scored.path_.train_score, plain.path_.train_score)


def test_groups_reach_the_splitter():
    groups = np.arange(len(y)) % 7
    model = AnnealedLogisticRegression(cv=GroupKFold(7), schedule=[0.1, 0.01]).fit(X, y, groups=groups)
    assert model.path_.validation_score.shape == (2, 7)


@pytest.mark.parametrize("cv", [GroupKFold(7), StratifiedGroupKFold(7), LeaveOneGroupOut()], ids=repr)
def test_a_group_splitter_without_groups_is_an_error_that_says_how_to_pass_them(cv):
    with pytest.raises(ValueError, match=r"cv=\w+\(.*\) needs groups: give them to fit, as fit\(X, y, groups=groups\)"):
        AnnealedLogisticRegression(cv=cv).fit(X, y)


def test_groups_and_sample_weights_are_routed():
    groups, weight = np.arange(len(y)) % 5, np.linspace(0.5, 1.5, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(accuracy_score).set_score_request(sample_weight=True)
        model = AnnealedLogisticRegression(cv=GroupKFold(5), scoring=scorer, schedule=[0.1, 0.01])
        model = model.set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weight, groups=groups)
    assert model.path_.validation_score.shape == (2, 5)


def test_repeated_folds_have_one_score_each():
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    model = AnnealedLogisticRegression(cv=cv, schedule=[0.1, 0.01]).fit(X, y)
    assert model.path_.validation_score.shape == (2, 6)


@pytest.mark.parametrize("estimator", [AnnealedLogisticRegression, AnnealedLDA])
def test_scores_of_folds_that_miss_a_class_are_finite(estimator):
    model = estimator(cv=GroupKFold(3), schedule=np.geomspace(10, 1e-2, 8))
    with pytest.warns(
        UserWarning, match="3 of the 3 folds of cv train without any sample of a class, such as [012], and"
    ):
        model.fit(X, y, groups=y)
    assert np.isfinite(model.path_.validation_score).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_folds_may_miss_a_class_whose_samples_all_have_weight_zero():
    """There is no warning: pytest would turn it into an error."""
    weight, halves = (y != 2).astype(float), np.arange(len(y)) % 2 == 0
    AnnealedLogisticRegression(cv=[(halves & (y != 2), ~halves)], schedule=[0.1]).fit(X, y, sample_weight=weight)


def test_folds_that_train_on_one_class_are_refused():
    names = load_iris().target_names[y]
    with pytest.raises(
        ValueError, match="Fold 1 of cv trains on samples of a single class, setosa. Use stratified folds"
    ):
        AnnealedLogisticRegression(cv=TimeSeriesSplit(3)).fit(X, names)
    cv = [(np.arange(100), np.arange(100, 150)), (np.arange(100), np.arange(100))]
    with pytest.raises(ValueError, match="Fold 1 of cv trains on samples of a single class, versicolor"):
        AnnealedLogisticRegression(cv=cv).fit(X, names, sample_weight=(y > 0).astype(float))


def test_automatic_schedule_starts_near_the_prior_and_stops_after_the_best():
    wine = load_wine(return_X_y=True)
    path = AnnealedLogisticRegression().fit(*wine).path_
    prior_entropy = -np.sum([p * np.log(p) for p in np.bincount(wine[1]) / len(wine[1])])
    assert path.entropy[0] == pytest.approx(prior_entropy, rel=0.02)
    assert 0 < path.best_index < len(path) - 1
    assert np.all(np.diff(path.temperatures) < 0)
    assert np.all(np.diff(path.entropy) < 0)


def test_calibration_improves_the_held_out_loss_and_its_scale_is_that_of_the_chosen_temperature():
    wine = load_wine(return_X_y=True)
    calibrated, plain = AnnealedLogisticRegression().fit(*wine), AnnealedLogisticRegression(calibrate=False).fit(*wine)
    best = calibrated.path_.validation_score.mean(axis=1)[calibrated.path_.best_index]
    assert best > plain.path_.validation_score.mean(axis=1).max()
    assert calibrated.posterior_scale_ == calibrated.path_.posterior_scale[calibrated.path_.best_index]
    assert plain.path_.posterior_scale.max() == 1.0


def test_equal_seeds_give_equal_bits():
    first, second = (AnnealedLogisticRegression(random_state=3).fit(X, y) for _ in range(2))
    assert first.path_ == second.path_
    other = AnnealedLogisticRegression(random_state=4).fit(X, y)
    assert not np.array_equal(first.path_.validation_score[:20], other.path_.validation_score[:20])


def test_leave_one_out_chooses_about_the_temperature_of_many_folds():
    table = make_gaussian_classes(400, 6, 3, separation=1.5, random_state=0)
    ladder = np.geomspace(3, 1e-4, 14)
    left_out = AnnealedLogisticRegression(selection="loo", schedule=ladder).fit(table.X, table.y)
    folds = AnnealedLogisticRegression(cv=40, schedule=ladder).fit(table.X, table.y)
    assert left_out.path_.validation_score.shape == (14, 5)
    losses = [model.path_.validation_score.mean(axis=1) for model in (left_out, folds)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-2)  # folds are stratified, unlike single samples
    assert abs(left_out.path_.best_index - folds.path_.best_index) <= 1


@pytest.mark.parametrize("cv", [None, 3])
def test_leave_one_out_near_separability_warns_and_uses_folds(cv):
    table, schedule = separable(), [1.0, 1e-2, 1e-4, 1e-6]
    with pytest.warns(UserWarning, match=r"is not to be trusted at temperature .* near separability. Folds are used"):
        model = AnnealedLogisticRegression(selection="loo", schedule=schedule, cv=cv).fit(table.X, table.y)
    assert model.path_ == AnnealedLogisticRegression(schedule=schedule, cv=cv).fit(table.X, table.y).path_


def test_leave_one_out_ignores_samples_of_weight_zero():
    table, schedule = separable(), [1.0, 1e-2, 1e-4, 1e-6]
    X_tiled, y_tiled, weight = np.tile(table.X, (40, 1)), np.tile(table.y, 40), np.repeat([1.0, 0.0], [36, 39 * 36])
    with pytest.warns(UserWarning, match="Leave-one-out is not to be trusted"):
        AnnealedLogisticRegression(selection="loo", schedule=schedule).fit(X_tiled, y_tiled, sample_weight=weight)
    model = AnnealedLogisticRegression(selection="loo", schedule=schedule[:1], tol=1e-8)
    weighted = model.fit(X_tiled, y_tiled, sample_weight=weight).path_.validation_score
    removed = model.fit(table.X, table.y).path_.validation_score
    np.testing.assert_allclose(weighted, removed, rtol=1e-5)


def test_leave_one_out_with_a_scorer_is_refused():
    with pytest.raises(ValueError, match="compares log-losses.*Got scoring='accuracy'"):
        AnnealedLogisticRegression(selection="loo", scoring="accuracy").fit(X, y)


@pytest.mark.parametrize("n_rows, n_classes, n_folds", [(200, 3, 5), (97, 10, 4), (40, 12, 3)])
def test_folds_are_those_of_scikit_learn(n_rows, n_classes, n_folds):
    labels = np.random.RandomState(1).randint(n_classes, size=n_rows)
    labels = labels[np.bincount(labels)[labels] > 1]
    _, labels = np.unique(labels, return_inverse=True)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=3)
    with pytest.warns() if np.bincount(labels).min() < n_folds else nullcontext():
        known = list(splitter.split(labels[:, None], labels))
    for actual, expected in zip(stratified_splits(n_folds, labels, 3), known, strict=True):
        for actual_part, expected_part in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(actual_part, expected_part)


def test_a_temperature_whose_score_is_nan_is_never_chosen():
    scores = np.array([[-0.5, -0.6], [-0.3, -0.4], [np.nan, -0.1]])
    for rule in ("best", "one_standard_error"):
        assert choose(scores, rule) == 1


@pytest.mark.parametrize("rule", ["best", "one_standard_error"])
@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([[-np.inf, -1.0], [-np.inf, -0.5]], 0),
        ([[-np.inf, -1.0], [-0.5, -0.5]], 1),
        ([[1.0, 2.0], [np.inf, np.inf]], 1),
    ],
    ids=["all", "the first", "the best"],
)
def test_scores_may_be_infinite(rule, scores, chosen):
    assert choose(np.array(scores), rule) == chosen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("has_margin", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_rescaled_losses_are_those_at_the_returned_scale_which_is_optimal(dtype, has_margin, n_classes):
    generator = np.random.default_rng(3)
    labels, weight = generator.integers(0, n_classes, 500), generator.uniform(0.5, 2, 500)
    logits = (8 * generator.normal(size=(500, n_classes)) + 4 * np.eye(n_classes)[labels]).astype(dtype)
    deviation = deviations(logits.copy(), labels)
    margin = mean_margin(deviation, labels, weight)
    assert margin == pytest.approx(weight @ margins_of(logits, labels) / weight.sum(), rel=1e-5)
    log_scale, losses = rescaled(deviation, weight, margin if has_margin else None)
    exact = gibbs.negative_log_likelihood(np.exp(log_scale) * logits.astype(float), labels)
    np.testing.assert_allclose(losses, exact, atol=2e-5, rtol=1e-5)

    def criterion(log_scale):
        loss = weight @ gibbs.negative_log_likelihood(np.exp(log_scale) * logits.astype(float), labels) / weight.sum()
        if has_margin:
            return loss + penalty(log_scale, loss, margin, weight.sum())
        return loss + SCALE_PRIOR * log_scale**2 / weight.sum()

    assert criterion(log_scale) <= min(criterion(log_scale - 0.01), criterion(log_scale + 0.01))


def margins_of(logits, labels):
    return np.array([row[label] - np.delete(row, label).max() for row, label in zip(logits, labels, strict=True)])


def test_posteriors_stay_below_one_if_every_sample_is_classified_correctly():
    """The fewer samples, the less certain: held-out losses alone would prefer a posterior of one."""
    generator, uncertainty = np.random.default_rng(0), []
    for n_rows in (40, 400):
        y = np.arange(n_rows) % 2
        X = generator.normal(size=(n_rows, 2)) + 12 * y[:, None]
        model = AnnealedLogisticRegression(penalty_scaling="standardize").fit(X, y)
        assert model.score(X, y) == 1
        uncertainty.append(1 - model.predict_proba(X)[np.arange(n_rows), y].mean())
    assert 1e-5 < uncertainty[1] < 0.5 * uncertainty[0] < 0.01


def test_held_out_samples_are_ordered_by_fold():
    splits = [(np.array([2, 3]), np.array([0, 1])), (np.array([0, 1]), np.array([3, 2]))]
    held_out = held_out_by_fold(splits)
    assert held_out.rows.tolist() == [0, 1, 3, 2]
    assert held_out.fits.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("rate", [0.4, 0.6, 0.7, 0.8])
def test_no_temperature_is_evaluated_twice(rate):
    """At some cooling rates the middle of a gap coincides with a temperature of the schedule."""
    path = (
        AnnealedLogisticRegression(schedule=AdaptiveSchedule(cooling_rate=rate)).fit(*load_wine(return_X_y=True)).path_
    )
    assert (path.temperatures[1:] < 0.95 * path.temperatures[:-1]).all()


@pytest.mark.parametrize(
    "settings",
    [{}, {"cv": 3}, {"selection": "holdout", "cv": GroupKFold(5)}, {"selection": "loo"}],
    ids=str,
)
def test_ignored_groups_cause_a_warning(settings):
    groups = np.arange(len(y)) % 7
    with pytest.warns(UserWarning, match="groups are ignored: .* such as cv=GroupKFold"):
        model = AnnealedLogisticRegression(schedule=[0.1, 0.01], **settings).fit(X, y, groups=groups)
    plain = AnnealedLogisticRegression(schedule=[0.1, 0.01], **settings).fit(X, y)
    np.testing.assert_array_equal(model.path_.validation_score, plain.path_.validation_score)


def test_groups_are_accepted_without_a_warning_if_no_sample_is_held_out():
    AnnealedLogisticRegression(schedule=[0.1], selection="last").fit(X, y, groups=np.arange(len(y)))
    held_out = AnnealedLogisticRegression(schedule=[0.1], selection="holdout")
    held_out.fit(X, y, X_val=X, y_val=y, groups=np.arange(len(y)))
