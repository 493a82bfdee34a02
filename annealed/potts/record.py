"""`PrototypePath`, the record of a `PottsDA` fit: one entry for each temperature of each round of growth."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from annealed.optional import require
from annealed.potts.cooling import Cooled


@dataclass(frozen=True, repr=False)
class PrototypePath:
    """Record of every temperature visited, in order; every round of growth starts again at a higher temperature.

    Attributes
    ----------
    temperatures : ndarray of shape (n_steps,)
    round : ndarray of int of shape (n_steps,)
        Round of growth, from 0.
    free_energy : ndarray of shape (n_steps,)
        Psi at the end of each temperature, a sum over the weighted samples.
    membership_saturation, label_saturation : ndarray of shape (n_steps,)
        Mean over samples of ``sum_k D_ik**2``, and mean over prototypes of ``sum_m Xi_km**2``. At high temperature
        they are 1 / n_prototypes and 1 / n_classes; when memberships and labels are hard, they are 1.
    n_prototypes, n_sweeps : ndarray of int of shape (n_steps,)
    n_dead, n_duplicate : ndarray of int of shape (n_rounds,)
        Number of prototypes that were removed at the end of each round: those without samples, and those that
        coincided with another prototype of the same label.
    validation_loss : ndarray
        Held-out log-loss of each round of the search at its best penalty; empty if nothing was held out.

    Examples
    --------
    >>> from annealed import PottsDA
    >>> from annealed.datasets import make_mixed_strips
    >>> X, y = make_mixed_strips(random_state=0)
    >>> path = PottsDA(n_prototypes=4).fit(X, y).path_
    >>> int(path.n_prototypes[-1]), bool(path.membership_saturation[-1] > 0.98)
    (4, True)
    """

    temperatures: np.ndarray
    round: np.ndarray
    free_energy: np.ndarray
    membership_saturation: np.ndarray
    label_saturation: np.ndarray
    n_prototypes: np.ndarray
    n_sweeps: np.ndarray
    n_dead: np.ndarray
    n_duplicate: np.ndarray
    validation_loss: np.ndarray

    @classmethod
    def of_rounds(cls, rounds: list[Cooled], validation_loss) -> PrototypePath:
        steps = [step for cooled in rounds for step in cooled.steps]
        return cls(
            temperatures=np.array([step.temperature for step in steps]),
            round=np.repeat(np.arange(len(rounds)), [len(cooled.steps) for cooled in rounds]),
            free_energy=np.array([step.free_energy for step in steps]),
            membership_saturation=np.array([step.membership_saturation for step in steps]),
            label_saturation=np.array([step.label_saturation for step in steps]),
            n_prototypes=np.array([step.n_prototypes for step in steps]),
            n_sweeps=np.array([step.n_sweeps for step in steps]),
            n_dead=np.array([cooled.n_dead for cooled in rounds]),
            n_duplicate=np.array([cooled.n_duplicate for cooled in rounds]),
            validation_loss=np.asarray(validation_loss, dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.temperatures)

    def _columns(self):
        per_round = ("n_dead", "n_duplicate", "validation_loss")
        names = [field.name for field in fields(self) if field.name not in per_round]
        return {"temperature" if name == "temperatures" else name: getattr(self, name) for name in names}

    def to_frame(self):
        """The path as a pandas DataFrame, one row per temperature."""
        return require("pandas", extra="frames").DataFrame(self._columns())

    def __repr__(self):
        """A table of the last temperature of every round, the removed prototypes, and the held-out losses."""
        last = np.append(np.flatnonzero(np.diff(self.round)), len(self) - 1)
        columns = self._columns()
        lines = [f"PrototypePath: {len(self)} temperatures in {len(last)} rounds; the end of each round:"]
        lines.append(" ".join(f"{name:>21}" for name in columns))
        lines += [" ".join(f"{values[index]:>21.6g}" for values in columns.values()) for index in last]
        dead, duplicate = int(self.n_dead.sum()), int(self.n_duplicate.sum())
        if dead or duplicate:
            lines.append(f"removed: {dead} dead, {duplicate} duplicate")
        if len(self.validation_loss):
            losses = " ".join(f"{loss:.3g}" for loss in self.validation_loss)
            lines.append(f"held-out loss of the rounds searched: {losses}")
        return "\n".join(lines)

    def __eq__(self, other):
        if not isinstance(other, PrototypePath):
            return NotImplemented
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]
