"""Kernel family: scores are `<lambda_j, phi(x)> + intercept`, linear in the features of a kernel.

The inner product of the paper is taken in the space of the kernel, so that this is the inner-product family on
`KernelFeatures`: |lambda|^2 is the norm of a score in that space, and the path, its folds and its certificate are those
of linear scores. The features of all rows are computed once for a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.cluster import kmeans_plusplus

from annealed.arrays import is_foreign, to_host
from annealed.problems.base import Objective, Predictor, check_choice, number_of, unit_C
from annealed.problems.kernel_features import Kernel, KernelFeatures, as_dense, on_host, place_of
from annealed.problems.linear import mean_of_columns, scores_of_rows, spread_of_columns
from annealed.problems.penalized_linear import PenalizedLinearProblem
from annealed.rows import Design, make_design
from annealed.rows.array_api import DEVICE_BLOCK_BYTES
from annealed.rows.indicators import categories_of

KERNELS = ("rbf", "laplacian", "polynomial", "precomputed")
SCALES = ("auto", "standardize", "ard", "none")
MOST_ROWS = 10_000  # rows that may all be landmarks on the host
CANDIDATES = 20_000  # rows among which landmarks are chosen
SAMPLED_ROWS = 1000  # rows from which the approximation error and the relevance of columns are estimated
MOST_BYTES = 1 << 28  # of features in double precision; more are stored in float32
RIDGES = 0.1 ** np.arange(1.0, 11.0, 0.5)  # relative to the largest variance of a feature
FIRST_LANDMARKS = 250  # with which gamma and the scales of the columns are chosen
LADDER = {"rbf": 4.0, "laplacian": 2.0, "polynomial": 4.0}  # ratio of successive gammas
MOST_GAMMAS = 8  # tried for one scale of the columns
NEGLIGIBLE = 1e-5  # largest change of a logit by leaving out landmarks of small coefficients


class KernelPredictor(Predictor):
    """Logits are combinations of the kernels of a row and the landmarks.

    Coefficients of landmarks that lie near each other may cancel each other, so they keep their digits.
    """

    needs_digits = True

    def __init__(self, features: KernelFeatures) -> None:
        self.features = features

    def support(self, dual_coef) -> np.ndarray:
        """Indices of the landmarks that predictions need: without the others no logit changes by more than NEGLIGIBLE.

        An entry of a bounded kernel is at most one.
        """
        size = np.abs(to_host(dual_coef)).max(axis=0)
        if not self.features.kernel.is_bounded:
            return np.flatnonzero(size)
        order = np.argsort(size, kind="stable")
        return np.sort(order[np.searchsorted(np.cumsum(size[order]), NEGLIGIBLE, side="right") :])

    def logits(self, X, arrays, temperature):
        dual_coef, intercept = arrays["dual_coef"], arrays["intercept"]
        features = self.features
        if is_foreign(X):
            place = place_of(X)
            dual_coef, intercept = place.wide(dual_coef), place.wide(intercept)
            blocks = [
                features.against(X[rows, :]) @ dual_coef.T for rows in features.slices(X.shape[0], DEVICE_BLOCK_BYTES)
            ]
            return place.row(place.xp.concat(blocks) + intercept)
        chosen = self.support(dual_coef)
        logits = np.zeros((X.shape[0], len(dual_coef)))
        for rows in features.slices(X.shape[0]) if len(chosen) else ():
            logits[rows] = scores_of_rows(features.against(X[rows], chosen), dual_coef[:, chosen].T, 0.0)
        return (logits + intercept).astype(np.float32 if X.dtype == np.float32 else np.float64)


@dataclass(frozen=True)
class KernelRows:
    """The rows of a fit, and the scales of their columns, from which kernels are made.

    n_varying : columns that vary; those of a category count as one
    is_relative : whether scales were divided by the relevance of columns
    """

    family: KernelInnerProduct
    design: Design
    center: np.ndarray
    scale: np.ndarray
    n_varying: float
    random_state: Any
    is_relative: bool = False

    @classmethod
    def of(cls, family: KernelInnerProduct, design: Design, random_state) -> KernelRows:
        if family.kernel == "precomputed":
            _check_precomputed(design.X)
            return cls(family, design, np.zeros(1), np.ones(1), 1.0, random_state)
        center = mean_of_columns(design)
        spread = spread_of_columns(design, center, of_constant=np.inf)
        varies = np.isfinite(spread)
        is_plain = family.scale == "none" or (family.scale == "auto" and sparse.issparse(design.X))
        scale = np.where(varies, 1.0, np.inf) if is_plain else spread
        if not is_plain and isinstance(design.X, np.ndarray):
            scale = scale.copy()
            for category in categories_of(design.X):
                scale[category] = np.sqrt(np.sum(np.where(varies[category], spread[category], 0) ** 2))
            scale[~varies] = np.inf
        n_varying = float(np.sum((np.where(varies, spread, 0) / scale) ** 2))
        return cls(family, design, center, scale, n_varying, random_state)

    @property
    def weighty(self) -> np.ndarray:
        """Indices of the rows that have weight."""
        return np.flatnonzero(to_host(self.design.weight[:, 0]) > 0)

    @property
    def unit_gamma(self) -> float:
        """The gamma at which the exponent, or for polynomials the product, of two rows of normal columns is about 1."""
        size = {"rbf": 2.0, "laplacian": 2 / np.sqrt(np.pi)}.get(self.family.kernel, 1.0) * self.n_varying
        return 1 / size if size > 0 else 1.0

    def relative(self, relevance) -> KernelRows:
        """The same rows with scales divided by the relevance of each column."""
        with np.errstate(divide="ignore"):
            return replace(self, scale=np.where(relevance > 0, self.scale / relevance, np.inf), is_relative=True)

    def sample(self):
        """Indices of some rows that have weight, evenly spaced, and these rows."""
        chosen = self.weighty[:: max(1, len(self.weighty) // SAMPLED_ROWS)]
        return chosen, self._taken(chosen)

    def _taken(self, rows):
        X, place = self.design.X, self.design.place
        return place.xp.take(X, place.whole(rows), axis=0) if is_foreign(X) else X[rows]

    def landmarks(self, number) -> np.ndarray:
        """Indices of so many rows that lie far apart (k-means++), or of all that have weight."""
        rows, family = self.weighty, self.family
        if number >= len(rows):
            return rows
        if len(rows) > CANDIDATES:
            rows = np.sort(self._generator().choice(rows, max(CANDIDATES, number), replace=False))
        if family.kernel == "precomputed":
            return np.sort(self._generator().choice(rows, number, replace=False))
        scaled = KernelFeatures(Kernel("rbf"), self.center, self.scale, None, rows, None).scaled(
            on_host(self._taken(rows))
        )
        _, chosen = kmeans_plusplus(scaled, number, random_state=self._generator())
        return np.sort(rows[chosen])

    def _generator(self):
        return np.random.RandomState(self.random_state)

    def best_candidate(self, gamma, n_landmarks) -> Candidate:
        """The candidate of least left-out error among gammas near this one; that of this one if gamma is given."""
        indices = self.landmarks(n_landmarks)
        best = self.candidate(gamma, indices)
        if not self.family.chooses_gamma:
            return best
        errors, place, ratio = {0: best.error()}, 0, LADDER[self.family.kernel]
        while len(errors) < MOST_GAMMAS and (left := [near for near in (place + 1, place - 1) if near not in errors]):
            candidate = self.candidate(gamma * ratio ** left[0], indices)
            errors[left[0]] = candidate.error()
            if errors[left[0]] < errors[place]:
                best, place = candidate, left[0]
        return best

    def candidate(self, gamma, indices) -> Candidate:
        """The features of the kernel with this gamma and these landmarks."""
        design, family = self.design, self.family
        kernel = Kernel(family.kernel, float(gamma), family.degree)
        X = design.X if is_foreign(design.X) or design.place.is_host else design.place.row(design.X)
        features = KernelFeatures.of(kernel, X, self.center, self.scale, indices)
        is_small = 8 * design.n_rows * features.n_landmarks <= MOST_BYTES and "float32" not in str(X.dtype)
        return Candidate(self, features, features.of_rows(X, np.float64 if is_small else np.float32))


@dataclass(frozen=True)
class Candidate:
    """A kernel and the features of the rows, `points` (n_rows, rank)."""

    rows: KernelRows
    features: KernelFeatures
    points: Any

    @property
    def gamma(self) -> float:
        return self.features.kernel.gamma

    @property
    def indices(self) -> np.ndarray:
        """Of the landmarks."""
        return self.features.indices

    @property
    def problem(self) -> KernelProblem:
        return KernelProblem(self)

    def error(self) -> float:
        """Mean squared error of left-out samples by the best ridge regression on the indicators of the classes.

        It takes a tenth of the time of a path and ranks kernels nearly as their validated paths do.
        """
        design, place = self.rows.design, self.rows.design.place
        weight, xp = place.wide(design.weight[:, 0]), place.xp
        labels = place.whole(design.labels)
        targets = place.wide(labels[:, None] == xp.arange(design.n_classes, dtype=labels.dtype, device=place.device))
        points = place.wide(self.points)
        points, targets = points - weight @ points, targets - weight @ targets
        variances, vectors = design.eigh(as_dense((points.T * weight) @ points))
        points = points @ place.wide(vectors)
        products, largest, errors = points.T @ (weight[:, None] * targets), float(variances[-1]), []
        for ridge in largest * RIDGES:
            shrunk = place.wide(1 / (np.maximum(variances, 0.0) + ridge))
            leverage = weight * (1 + (points * points) @ shrunk)
            residual = (targets - points @ (shrunk[:, None] * products)) / (1 - leverage)[:, None]
            errors.append(float(weight @ xp.sum(residual * residual, axis=1)))
        return min((error for error in errors if error >= 0), default=np.inf)

    def lost(self) -> float:
        """The approximation error, on some rows."""
        chosen, rows = self.rows.sample()
        diagonal = rows[np.arange(len(chosen)), chosen] if self.rows.family.kernel == "precomputed" else None
        return self.features.lost(rows, diagonal)

    def relevance(self, dual_coef) -> np.ndarray:
        """Root mean square of the derivatives of the logits by each scaled column, relative to that of all columns.

        dual_coef : of the logits, (n_classes, n_landmarks)
        """
        features = self.features
        rows, landmarks = (as_dense(part) for part in (features.scaled(self.rows.sample()[1]), features.landmarks))
        slopes = np.sqrt(np.mean(features.kernel.derivatives(rows, landmarks, to_host(dual_coef)) ** 2, axis=(0, 1)))
        varies = np.isfinite(self.rows.scale)
        whole = np.sqrt(np.mean(slopes[varies] ** 2)) if varies.any() else 0.0
        return np.where(varies, slopes / whole, 0.0) if whole > 0 else np.ones(len(slopes))


class KernelProblem(PenalizedLinearProblem):
    """The penalized free energy of scores that are linear in the features of a kernel."""

    def __init__(self, candidate: Candidate):
        design, family = candidate.rows.design, candidate.rows.family
        data = design.labels, design.weight, design.total_weight, design.n_classes
        super().__init__(
            make_design(candidate.points, *data, design.place),
            l2_strength=family.l2_strength,
            penalty_scaling="none",
            fit_intercept=family.fit_intercept,
        )
        self.candidate = candidate
        returns_numpy = design.place.is_host or design.place.returns_numpy
        features = replace(candidate.features, whitening=None)  # as large as the kernel; predictions do not need it
        self.predictor = KernelPredictor(features.on_host() if returns_numpy else features)

    def report_scores(self, coef, intercept):
        found = super().report_scores(coef, intercept)
        return {"dual_coef": self.candidate.features.combinations(found["coef"]), "intercept": found["intercept"]}


class KernelInnerProduct(Objective):
    """Inner-product discriminants in the space of a kernel, with the penalty of (17).

    Parameters are those of :class:`annealed.AnnealedKernelClassifier`.
    """

    keeps_rows = True
    cooling_rate = 0.4
    learns_late = True

    def __init__(
        self,
        kernel="rbf",
        *,
        gamma="cv",
        degree=3,
        scale="auto",
        n_landmarks="auto",
        l2_strength=1.0,
        fit_intercept=True,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.scale = scale
        self.n_landmarks = n_landmarks
        self.l2_strength = l2_strength
        self.fit_intercept = fit_intercept

    @property
    def has_gamma(self) -> bool:
        """Whether the library computes the kernel: then X may be sparse, or on a device."""
        return isinstance(self.kernel, str) and self.kernel in LADDER

    accepts_sparse = runs_on_devices = has_gamma

    @property
    def chooses_gamma(self) -> bool:
        return self.has_gamma and isinstance(self.gamma, str)

    def unit_C(self, total_weight, n_classes):
        return unit_C(self.l2_strength, total_weight, n_classes)

    def prepare(self, design, random_state=None):
        """The problem of the gamma that is given, or that ridge regression prefers; `KernelSearch` tries others."""
        self._check()
        rows = KernelRows.of(self, design, _seed(random_state))
        gamma = rows.unit_gamma if isinstance(self.gamma, str) else self.gamma
        return rows.best_candidate(gamma, self.first_landmarks(rows)).problem

    def first_landmarks(self, rows: KernelRows) -> int:
        """Number of landmarks to begin with."""
        n_rows = len(rows.weighty)
        if isinstance(self.n_landmarks, str) and self.n_landmarks == "all":
            place = rows.design.place
            # On a device, as many as eight tables of kernels of all rows have room in double precision.
            most = int(np.sqrt(place.free_bytes()) / 8) if place.is_accelerator else MOST_ROWS
            if n_rows > most:
                raise ValueError(
                    f'n_landmarks="all" is for at most {most:,} samples here. Got {n_rows:,}. '
                    'Use n_landmarks="auto", or a number of landmarks.'
                )
            return n_rows
        return FIRST_LANDMARKS if isinstance(self.n_landmarks, str) else int(self.n_landmarks)

    def _check(self):
        if not callable(self.kernel):
            check_choice(self.kernel, "kernel", KERNELS)
        check_choice(self.scale, "scale", SCALES)
        is_cv = isinstance(self.gamma, str) and self.gamma == "cv"
        if not is_cv and not 0 < number_of(self.gamma) < np.inf:
            raise ValueError(f'gamma must be "cv" or a positive number. Got {self.gamma!r}.')
        if not isinstance(self.degree, int | np.integer) or isinstance(self.degree, bool) or self.degree < 1:
            raise ValueError(f"degree must be a whole number of at least 1. Got {self.degree!r}.")
        number = self.n_landmarks
        is_named = isinstance(number, str) and number in ("auto", "all")
        if not is_named and (not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1):
            raise ValueError(f'n_landmarks must be "auto", "all" or a whole number of at least 1. Got {number!r}.')
        if self.scale == "ard" and not self.has_gamma:
            raise ValueError(f'scale="ard" needs one of the kernels {KERNELS[:3]}. Got kernel={self.kernel!r}.')


def _seed(random_state) -> int:
    return int(random_state.randint(2**31 - 1)) if random_state is not None else 0


def _check_precomputed(X):
    """Refuse a kernel matrix of the samples that is not square or not symmetric."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f'With kernel="precomputed", X must be the square matrix of the kernel of all samples. Got shape {X.shape}.'
        )
    table = to_host(X)
    if not np.abs(table - table.T).max() <= 1e-6 * np.abs(table).max():
        row, column = np.unravel_index(np.argmax(np.abs(table - table.T)), table.shape)
        raise ValueError(
            f"The precomputed kernel must be symmetric. Got {table[row, column]:.6g} in row {row}, column {column}, "
            f"and {table[column, row]:.6g} in row {column}, column {row}."
        )
