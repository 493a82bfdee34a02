"""`python dev.py bench lda`: `AnnealedLDA` beside two LDAs of scikit-learn, on real tables with spoilt columns.

Every table of the suite is thinned out to MOST_SAMPLES samples and MOST_COLUMNS columns. Each third of it is held out
in turn; errors and log-losses are those of all held-out samples. A variant spoils the columns in one way, the same for
all three. Constant columns must change no probability. Two points of error are one or two samples of a small table:
`--repeats 5` divides it into thirds five times.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss

from annealed import AnnealedLDA
from annealed.datasets import load_table, table_names
from annealed.rows.threads import one_thread

MOST_SAMPLES, MOST_COLUMNS = 1500, 400
N_RARE = 5  # unusual values of a nearly constant column
MOST_WORSE = 0.02  # error beyond the better LDA's that is a failure
COLUMNS = (
    "table",
    "variant",
    "temperature",
    "scale",
    "change",
    *(f"{what}_{who}" for what in ("error", "loss") for who in ("annealed", "lda", "shrunk")),
)


# --- variants: each takes the columns, which samples are for training, and a generator ----------------------------


def plain(X, is_train, draw):
    return X


def constant(X, is_train, draw):
    """Forty columns of one value each."""
    return np.column_stack([X, np.zeros((len(X), 30)), np.tile(draw.normal(size=10) * 1e3, (len(X), 1))])


def indicator(X, is_train, draw):
    """A column of zeros but for ones in a few samples."""
    return np.column_stack([X, _scattered(is_train, draw, N_RARE, np.ones)])


def quantity(X, is_train, draw):
    """A column of one number, up to rounding, but for a few that differ by orders of magnitude."""
    values = _scattered(is_train, draw, N_RARE, lambda size: np.exp(3 * draw.normal(size=size)))
    return np.column_stack([X, values + 1e-9 * draw.normal(size=len(X))])


def lone(X, is_train, draw):
    """Three columns, each zero in all samples but one."""
    return np.column_stack([X, *(_scattered(is_train, draw, 1, np.ones) for _ in range(3))])


def sentinel(X, is_train, draw):
    """A missing value, coded as -999 standard deviations, in one training sample."""
    X, row = X.copy(), draw.choice(np.flatnonzero(is_train))
    X[row, draw.choice(np.flatnonzero(X.std(axis=0)))] = -999 * X.std()
    return X


def sentinels(X, is_train, draw):
    """Several of them, in three columns, also where held out."""
    X, width = X.copy(), X.std()
    for column in draw.choice(np.flatnonzero(X.std(axis=0)), 3):
        X[draw.choice(np.flatnonzero(is_train), 3), column] = -999 * width
        X[draw.choice(np.flatnonzero(~is_train), 1), column] = -999 * width
    return X


def _scattered(is_train, draw, n_values, make):
    """Zeros, with values in so many training samples and in as large a share of the others."""
    column = np.zeros(len(is_train))
    column[draw.choice(np.flatnonzero(is_train), n_values, replace=False)] = make(n_values)
    others = np.flatnonzero(~is_train)
    n_others = round(n_values * len(others) / is_train.sum())
    column[draw.choice(others, n_others, replace=False)] = make(n_others)
    return column


VARIANTS = {make.__name__: make for make in (plain, constant, indicator, quantity, lone, sentinel, sentinels)}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python dev.py bench lda", description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help="tables of the suite; default: all")
    parser.add_argument("--variants", nargs="*", choices=tuple(VARIANTS), default=tuple(VARIANTS), help="default: all")
    parser.add_argument("--covariance", default="auto", help="of AnnealedLDA")
    parser.add_argument("--shrinkage", default="oas", help="of AnnealedLDA")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1, help="how often a table is divided into thirds")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent / "results", help="folder of lda.csv"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    with one_thread(), warnings.catch_warnings(), (options.results / "lda.csv").open("w", newline="") as file:
        warnings.simplefilter("ignore")  # of collinear columns, by scikit-learn
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        rows = []
        for row in _rows(options):
            writer.writerow(row)
            file.flush()
            rows.append(row)
            print(
                " ".join(f"{value:.4g}" if isinstance(value, float) else f"{value:18}" for value in row.values()),
                flush=True,
            )
    return report(rows)


def _rows(options):
    for name in options.tables or table_names():
        draw = _generator(options.seed, name)
        X, y = _thinned(load_table(name), draw)
        divisions = [_thirds(y, draw) for _ in range(options.repeats)]
        as_they_are = None
        for variant in options.variants:
            draw, posteriors, labels, chosen = _generator(options.seed, f"{name} {variant}"), [], [], []
            for is_train in (part != third for part in divisions for third in range(3)):
                spoilt = VARIANTS[variant](X, is_train, draw)
                fitted = [model.fit(spoilt[is_train], y[is_train]) for model in _models(options)]
                posteriors.append([model.predict_proba(spoilt[~is_train]) for model in fitted])
                labels.append(y[~is_train])
                chosen.append((fitted[0].temperature_, fitted[0].posterior_scale_))
            own, *others = (np.concatenate(parts) for parts in zip(*posteriors, strict=True))
            truth, classes, change = np.concatenate(labels), fitted[0].classes_, ""
            if variant == "plain":
                as_they_are = own
            elif variant == "constant" and as_they_are is not None:
                change = float(np.abs(own - as_they_are).max())
            errors = [float(np.mean(classes[posterior.argmax(axis=1)] != truth)) for posterior in (own, *others)]
            losses = [float(log_loss(truth, posterior, labels=classes)) for posterior in (own, *others)]
            yield dict(
                zip(
                    COLUMNS,
                    (name, variant, *map(float, np.median(chosen, axis=0)), change, *errors, *losses),
                    strict=True,
                )
            )


def _generator(seed, words):
    return np.random.default_rng([seed, zlib.crc32(words.encode())])


def _models(options):
    own = AnnealedLDA(covariance=options.covariance, shrinkage=options.shrinkage)
    return own, LinearDiscriminantAnalysis(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def _thinned(table, draw):
    """Dense samples and their labels, of classes of at least three samples."""
    X, y = table.X, table.y
    rows = np.sort(draw.permutation(len(y))[:MOST_SAMPLES])
    X, y = X[rows], y[rows]
    columns = np.sort(draw.permutation(X.shape[1])[:MOST_COLUMNS])
    X = X[:, columns]
    X = X.toarray() if sparse.issparse(X) else X
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= 3))
    return X[kept], y[kept]


def _thirds(y, draw):
    """The third that each sample belongs to; every class is in all of them."""
    part = np.empty(len(y), dtype=int)
    part[np.lexsort([draw.random(len(y)), y])] = np.arange(len(y)) % 3
    return part


def report(rows) -> int:
    print(
        f"\n{'variant':12}{'tables':>8}{'too many errors':>17}{'least loss of three':>21}{'loss / better LDA':>19}"
        f"{'change':>9}"
    )
    n_failures = 0
    for variant in dict.fromkeys(row["variant"] for row in rows):
        of_variant = [row for row in rows if row["variant"] == variant]
        worse = [row["error_annealed"] - min(row["error_lda"], row["error_shrunk"]) for row in of_variant]
        ratios = [row["loss_annealed"] / min(row["loss_lda"], row["loss_shrunk"]) for row in of_variant]
        n_worse, changes = (
            sum(rise > MOST_WORSE for rise in worse),
            [row["change"] for row in of_variant if row["change"] != ""],
        )
        n_failures += n_worse
        share, change = np.mean(np.array(ratios) < 1), f"{max(changes):9.0e}" if changes else ""
        print(
            f"{variant:12}{len(of_variant):8}{n_worse:17}{share:21.0%}{np.exp(np.mean(np.log(ratios))):19.3f}{change}"
        )
    return int(n_failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
