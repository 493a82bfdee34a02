"""What a type checker must see in a user's script: `python dev.py check` runs mypy over this file.

`assert_type` fails if an attribute is `Any`; an ignored error that does not occur fails too (`warn_unused_ignores`), so
that every line below with a wrong choice must be refused.
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from annealed import MELDA, AnnealedClassifier, AnnealedLDA, AnnealedLogisticRegression, PooledGaussian, PottsDA
from annealed.path import AnnealingPath

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
y = np.array(["a", "a", "b", "b"])

Floats = NDArray[np.floating[Any]]

logistic = AnnealedLogisticRegression(selection="cv", penalty_scaling="half-whiten").fit(X, y)
assert_type(logistic, AnnealedLogisticRegression)
assert_type(logistic.coef_, Floats)
assert_type(logistic.intercept_, Floats)
assert_type(logistic.temperature_, float)
assert_type(logistic.C_, float)
assert_type(logistic.path_, AnnealingPath)
assert_type(logistic.n_iter_, int)
assert_type(logistic.predict_proba(X), Floats)
assert_type(logistic.at(0.1), AnnealedLogisticRegression)
assert_type(logistic.at(C=1.0), AnnealedLogisticRegression)
assert_type(AnnealedLogisticRegression.as_published(l2_strength=0.1), AnnealedLogisticRegression)

lda = AnnealedLDA(covariance="pooled").fit(X, y)
assert_type(lda, AnnealedLDA)
assert_type(lda.means_, Floats)
assert_type(lda.coef_, Floats)

melda = MELDA(calibrate=False).fit(X, y)
assert_type(melda, MELDA)
assert_type(melda.coef_, Floats)
assert_type(melda.transform(X), Floats)

potts = PottsDA(random_state=0).fit(X, y)
assert_type(potts, PottsDA)
assert_type(potts.prototypes_, Floats)
assert_type(potts.metric_, Floats)
assert_type(potts.decision_function(X), Floats)

gaussian = PooledGaussian().fit(X, y)
assert_type(gaussian, PooledGaussian)
assert_type(gaussian.coef_, Floats)

assert_type(AnnealedClassifier(temperature=0.5).fit(X, y), AnnealedClassifier)

AnnealedLogisticRegression(selection="cvv")  # type: ignore[arg-type]
AnnealedLogisticRegression(penalty_scaling="euclidean")  # type: ignore[arg-type]
AnnealedLogisticRegression(rule="one_se")  # type: ignore[arg-type]
AnnealedLogisticRegression(temperature="hot")  # type: ignore[arg-type]
AnnealedLogisticRegression(matmul_precision="float16")  # type: ignore[arg-type]
AnnealedLDA(selection="loo")  # type: ignore[arg-type]
AnnealedLDA(init="mean")  # type: ignore[arg-type]
MELDA(selection="best")  # type: ignore[arg-type]
PottsDA(decision="soft")  # type: ignore[arg-type]
AnnealedClassifier(solver="sgd")  # type: ignore[arg-type]
