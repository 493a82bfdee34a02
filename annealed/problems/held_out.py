"""Logits of held-out rows, each from the fit that was trained without it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from annealed.arrays import as_slice
from annealed.problems.base import Problem
from annealed.rows.threads import map_in_order


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows in ascending order: `rows[i]` is scored by the fit `fits[i]`, which was trained without it."""

    rows: np.ndarray
    fits: np.ndarray

    @cached_property
    def positions(self) -> dict:
        """Positions in `rows` of the rows of each fit."""
        return {fit: as_slice(np.flatnonzero(self.fits == fit)) for fit in np.unique(self.fits)}


NOTHING_HELD_OUT = HeldOut(np.empty(0, dtype=int), np.empty(0, dtype=int))


def held_out_logits(problem: Problem, held_out: HeldOut, points, temperatures) -> np.ndarray:
    """Logits (n_points, n_held_out, n_classes) of the held-out rows at several points.

    If logits do not depend on the temperature, there is one product per fold for all points.
    """
    if problem.hessians is not None:
        logits = problem.hessians.held_out_logits(held_out, points)
        if logits is not None:
            return logits
    if len(points) > 1 and not problem.temperature_free:
        each = [
            held_out_logits(problem, held_out, [point], [at]) for point, at in zip(points, temperatures, strict=True)
        ]
        return np.concatenate([logits.swapaxes(1, 2) for logits in each]).swapaxes(1, 2)
    return _by_fold(problem, held_out, np.stack(points), temperatures[0])


def _by_fold(problem, held_out, points, temperature):
    """One product per fold; points (n_points, n_fits, n_parameters)."""
    rows, all_logits = held_out.rows, None

    def logits_of_fold(fit):
        positions, fits = held_out.positions[fit], np.full(len(points), fit)
        return positions, problem.logits_of(rows[positions], points[:, fit], temperature, fits)

    most_threads = len(rows) // problem.design.rows_of_thread(len(points))
    for positions, logits in map_in_order(logits_of_fold, held_out.positions, most_threads):
        if all_logits is None:
            all_logits = np.empty((len(points), problem.n_classes, len(rows)), logits.dtype).swapaxes(1, 2)
        all_logits[:, positions] = logits.swapaxes(0, 1)
    return all_logits
