"""Exact Hessians of linear scores, for problems small enough to afford them.

With points z (a one last for the intercept) the Hessian of a fit's loss by differences of scores
(`annealed/objectives/contrasts.py`) has, for each pair of them, the block

    sum over rows of weight * covariance of the two scores * z z'

Both classes here give `Terms` of a stack of fits. `BlockRows` adds them up over blocks of any design. `SmallRows` keeps
the points and one half of their products z z' of all rows: a Hessian is then a single product of matrices.
Shapes: table (n_fits, n_scores, width); pairs are those of `Contrasts.pairs`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from annealed.design import CsrDesign, DenseDesign
from annealed.objectives import gibbs

MOST_PRODUCTS = 5_000_000  # entries of z z' over all rows, up to which one half of them is kept


class Terms(NamedTuple):
    """loss (n_fits,), gradient (n_fits, n_scores, width), blocks (n_fits, n_pairs, width, width) of the loss."""

    loss: np.ndarray
    gradient: np.ndarray
    blocks: np.ndarray


def hessian_rows(design, coordinates, contrasts, fit_intercept):
    """The rows as whichever class suits them."""
    is_small = design.n_rows * (coordinates.rank + fit_intercept) ** 2 <= MOST_PRODUCTS
    kind = SmallRows if is_small and isinstance(design, (DenseDesign, CsrDesign)) else BlockRows
    return kind(design, coordinates, contrasts, fit_intercept)


class SmallRows:
    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.contrasts, self.labels, self.weight = contrasts, design.labels, design.weight
        rows = np.concatenate(list(design.map_blocks(lambda block: block.rows_as_array())))
        points = coordinates.from_features(rows)
        self.points = np.column_stack([points, np.ones(len(points))]) if fit_intercept else points
        width = self.points.shape[1]
        left, right = np.triu_indices(width)
        self._products = self.points[:, left] * self.points[:, right]
        self._number = np.empty((width, width), dtype=int)  # of each entry of z z' among the products
        self._number[left, right] = self._number[right, left] = np.arange(len(left))

    def terms(self, table, fits) -> Terms:
        n_fits, n_scores, width = table.shape
        weight = self.weight[:, fits, None]
        scores = table.reshape(-1, width) @ self.points.T
        logits = self.contrasts.logits(scores.reshape(n_fits, n_scores, -1).transpose(2, 0, 1))
        losses, residual = gibbs.loss_and_residual(logits, self.labels)
        pulled = self.contrasts.pull(residual * weight).transpose(1, 2, 0)
        gradient = pulled.reshape(n_fits * n_scores, -1) @ self.points
        residual[np.arange(len(self.labels)), :, self.labels] += 1  # the posterior
        shares = (self.contrasts.pair_covariance(residual) * weight).transpose(1, 2, 0)
        products = shares.reshape(-1, len(self.labels)) @ self._products
        return Terms(
            np.einsum("ns,ns->s", weight[..., 0], losses),
            gradient.reshape(table.shape),
            products[:, self._number].reshape(n_fits, -1, width, width),
        )


class BlockRows:
    def __init__(self, design, coordinates, contrasts, fit_intercept):
        self.design, self.coordinates = design, coordinates
        self.contrasts, self.fit_intercept = contrasts, fit_intercept

    def terms(self, table, fits) -> Terms:
        rank = self.coordinates.rank
        coef, intercept = self.coordinates.to_features(table[..., :rank]), table[..., rank:].sum(axis=-1)

        def kernel(block):
            logits = self.contrasts.logits(block.product(coef) + intercept)
            losses, residual = gibbs.loss_and_residual(logits, block.labels)
            loss = np.einsum("ns,ns->s", block.weight, losses)
            pulled = self.contrasts.pull(residual * block.weight[..., None])
            gradient = block.transposed_product(pulled), pulled.sum(axis=0)
            residual[np.arange(len(residual)), :, block.labels] += 1  # the posterior
            shares = self.contrasts.pair_covariance(residual) * block.weight[..., None]
            return (loss, *gradient, *block.moments(shares))

        loss, coef_gradient, intercept_gradient, squares, sums, counts = self.design.sum_rows(kernel, fits)
        turn = self.coordinates.from_features
        gradient, blocks = np.empty_like(table), np.empty((*counts.shape, *[table.shape[2]] * 2))
        gradient[..., :rank] = turn(coef_gradient)
        blocks[..., :rank, :rank] = turn(np.swapaxes(turn(squares), -1, -2))
        if self.fit_intercept:
            gradient[..., rank] = intercept_gradient
            blocks[..., :rank, rank] = blocks[..., rank, :rank] = turn(sums)
            blocks[..., rank, rank] = counts
        return Terms(loss, gradient, blocks)
