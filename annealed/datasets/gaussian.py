"""Gaussian classes with a shared covariance, whose true posterior is log-linear and known.

    x | class j  ~  N(means_j, covariance)            covariance = factor @ factor'
    log posterior_j(x) = coef_j @ x + intercept_j - log_partition(x)
    coef_j = covariance^-1 means_j        intercept_j = log class_prior_j - means_j' covariance^-1 means_j / 2
Shapes: means, coef (n_classes, n_features), intercept (n_classes,), X (n_samples, n_features).
"""

import numpy as np
from sklearn.utils import Bunch, check_random_state


def make_gaussian_classes(
    n_samples: int,
    n_features: int,
    n_classes: int,
    *,
    separation: float = 3.0,
    condition: float = 100.0,
    class_prior=None,
    random_state=None,
) -> Bunch:
    """Draw samples from Gaussian classes with a shared, possibly ill-conditioned covariance.

    Parameters
    ----------
    n_samples, n_features, n_classes : int
        Size of the problem; at least 1, 1 and 2.
    separation : float, default=3.0
        Root mean square, over pairs of classes, of the Mahalanobis distance between their means. With two
        equally frequent classes the Bayes error is ``scipy.stats.norm.cdf(-separation / 2)``.
    condition : float, default=100.0
        Ratio of the covariance's largest to its smallest eigenvalue; at least 1.
    class_prior : array-like of shape (n_classes,), default=None
        Probabilities of the classes; None makes them equal. Labels are drawn independently, so a rare class
        can be absent from a small sample.
    random_state : int, RandomState instance or None, default=None
        Seed of the means, the covariance, the labels and the samples.

    Returns
    -------
    problem : Bunch
        ``X``, ``y`` (codes 0 to n_classes - 1), ``class_prior``, ``means``, ``covariance``, and
        ``coef`` and ``intercept`` of the true logits: the Bayes posterior is
        ``softmax(X @ coef.T + intercept)``.

    Examples
    --------
    >>> from annealed.datasets import make_gaussian_classes
    >>> problem = make_gaussian_classes(100, 5, 3, random_state=0)
    >>> problem.X.shape, problem.coef.shape
    ((100, 5), (3, 5))
    """
    _check_sizes(n_samples, n_features, n_classes, separation, condition)
    prior = _checked_prior(class_prior, n_classes)
    generator = check_random_state(random_state)

    # Generated in whitened coordinates, where the covariance is the identity: no matrix is inverted.
    white_means = _white_means(generator, n_classes, n_features, separation)
    spreads = condition ** np.linspace(0.0, -0.5, n_features)
    rotation, _ = np.linalg.qr(generator.normal(size=(n_features, n_features)))
    factor = rotation * spreads

    y = generator.choice(n_classes, size=n_samples, p=prior)
    white_samples = white_means[y] + generator.normal(size=(n_samples, n_features))
    return Bunch(
        X=white_samples @ factor.T,
        y=y,
        class_prior=prior,
        means=white_means @ factor.T,
        covariance=factor @ factor.T,
        coef=white_means @ (rotation / spreads).T,
        intercept=np.log(prior) - (white_means**2).sum(axis=1) / 2,
    )


def _white_means(generator, n_classes, n_features, separation):
    """Random means around the origin with the given root mean square distance between pairs."""
    means = generator.normal(size=(n_classes, n_features))
    means -= means.mean(axis=0)
    # Over ordered pairs of different centred points, mean |a - b|^2 = 2 sum |a|^2 / (n_classes - 1).
    distance = np.sqrt(2 * (means**2).sum() / (n_classes - 1))
    return means * (separation / distance)


def _check_sizes(n_samples, n_features, n_classes, separation, condition):
    smallest = {"n_samples": (n_samples, 1), "n_features": (n_features, 1), "n_classes": (n_classes, 2)}
    for name, (value, least) in smallest.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Got {value!r}.")
    if not 0 <= separation < np.inf:
        raise ValueError(f"separation must be finite and not negative. Got {separation!r}.")
    if not 1 <= condition < np.inf:
        raise ValueError(f"condition is a ratio of eigenvalues and must be at least 1. Got {condition!r}.")


def _checked_prior(class_prior, n_classes):
    if class_prior is None:
        return np.full(n_classes, 1 / n_classes)
    prior = np.asarray(class_prior, dtype=float)
    if prior.shape != (n_classes,) or not (prior > 0).all() or not np.isclose(prior.sum(), 1):
        raise ValueError(
            f"class_prior must contain {n_classes} positive probabilities that add up to 1. Got {class_prior!r}."
        )
    return prior / prior.sum()
