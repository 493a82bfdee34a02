"""Fit the embedded default, print the path, compare with peers on held-out rows, and draw it.

python dev.py demo
"""

import time
import warnings
from pathlib import Path

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from annealed import DistanceADA, InnerProductADA
from annealed.datasets import load_default
from annealed.displays import AnnealingPathDisplay

PICTURE = Path("annealing_path.png")


def main():
    table = load_default()
    parts = train_test_split(table.X, table.y, test_size=0.3, stratify=table.y, random_state=0)
    train_X, test_X, train_y, test_y = parts
    print(f"{len(train_y)} training rows, {len(test_y)} held out, {table.X.shape[1]} raw features\n")

    rows = []
    for classifier in [InnerProductADA(), DistanceADA(), LinearDiscriminantAnalysis(), LogisticRegression()]:
        seconds, n_warnings = fit(classifier, train_X, train_y)
        rows.append((classifier, seconds, n_warnings))
    model = rows[0][0]

    print_path(model)
    print_comparison(rows, test_X, test_y)
    draw(model)


def fit(classifier, X, y):
    """Fit, and return the seconds it took and the number of warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        classifier.fit(X, y)
        return time.perf_counter() - start, len(caught)


def print_path(model):
    path = model.path_
    validation_loss = -path.validation_score.mean(axis=1)
    print("InnerProductADA, from hot to cold; the chosen temperature is marked with *\n")
    print(f"  {'temperature':>12} {'train loss':>11} {'validation':>11} {'entropy':>9} {'iterations':>11}")
    columns = [path.temperatures, -path.train_score, validation_loss, path.entropy, path.n_iter]
    for index, (temperature, train, validation, entropy, n_iter) in enumerate(zip(*columns, strict=True)):
        mark = "*" if index == path.best_index else " "
        print(f"{mark} {temperature:12.4g} {train:11.4f} {validation:11.4f} {entropy:9.4f} {n_iter:11d}")
    print(f"\ntemperature_ = {model.temperature_:.4g}, posterior_scale_ = {model.posterior_scale_:.3f}\n")


def print_comparison(rows, test_X, test_y):
    print("On the held-out rows, all on the same raw features\n")
    print(f"  {'classifier':28} {'accuracy':>9} {'log-loss':>9} {'fit seconds':>12} {'warnings':>9}")
    for classifier, seconds, n_warnings in rows:
        accuracy = accuracy_score(test_y, classifier.predict(test_X))
        loss = log_loss(test_y, classifier.predict_proba(test_X))
        name = type(classifier).__name__
        print(f"  {name:28} {accuracy:9.3f} {loss:9.4f} {seconds:12.3f} {n_warnings:9d}")


def draw(model):
    display = AnnealingPathDisplay.from_estimator(model)
    display.figure_.savefig(PICTURE, dpi=150)
    print(f"\nThe path is drawn in {PICTURE.resolve()}")


if __name__ == "__main__":
    main()
