"""The verdict on one fit: how its result and its counts differ from the recorded ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAME = 1e-6  # largest difference of a probability that rounding explains
SOLVED_ALIKE = 5e-3  # largest difference of a probability that the tolerance of the solver explains
MOST_WORSE, NEGLIGIBLE_LOSS = 0.01, 0.002  # held-out log-loss may rise by this share, and by these nats
MOST_SUBOPTIMAL = 1.5e-6  # relative suboptimality, by the oracle, at any point of a path: the library promises 1e-6
HONEST = 1.5  # ratio of the oracle's bound to the certificate, up to which the certificate is right ...
ROUNDING = 1e-11  # ... beyond what is rounding
MOST_GROWTH = 1.15

# Costs that must not grow, and the growth of each that is too small to matter.
COSTS = {"work": 0.5, "passes": 3.0, "calls": 2000.0}
# What they are made of: shown, and judged with --each.
PARTS = {
    "passes64": 3.0,
    "passes32": 3.0,
    "columns64": 30.0,
    "columns32": 30.0,
    "hessians": 3.0,
    "hessian_millions": 0.5,
    "factor_millions": 0.5,
    "rotation_millions": 0.5,
    "exponential_millions": 0.02,
    "row_products": 5.0,
    "sweeps": 5.0,
}


class Verdict(NamedTuple):
    """agreement : in a word or two; failures : what must not be; ratios : new counts divided by the recorded ones"""

    agreement: str
    failures: list[str]
    ratios: dict[str, float]


def with_passes(counts: dict) -> dict:
    """Counts with the passes in all precisions together, a float32 pass as half a one."""
    return counts | {"passes": counts["passes64"] + 0.5 * counts["passes32"]}


def verdict(recorded: dict, found: dict, *, exact=False, each=False, counts_calls=True) -> Verdict:
    agreement, failures = _results(recorded, found, exact)
    failures += _certificates(found)
    if found["warnings"] > recorded["warnings"]:
        failures.append("does not converge")
    old, new = with_passes(recorded["counts"]), with_passes(found["counts"])
    judged = COSTS | (PARTS if each else {})
    if not counts_calls:
        judged = {name: slack for name, slack in judged.items() if name != "calls"}
    for name, slack in judged.items():
        if new[name] > MOST_GROWTH * old[name] and new[name] - old[name] > slack:
            failures.append(f"{name} {old[name]:.3g} -> {new[name]:.3g}")
    shown = {**COSTS, **PARTS}
    return Verdict(agreement, failures, {name: _ratio(old[name], new[name], slack) for name, slack in shown.items()})


def _results(recorded, found, exact):
    difference = _difference(recorded["probabilities"], found["probabilities"])
    rise = found["log_loss"] - recorded["log_loss"]
    if difference <= SAME:
        return "same", []
    words = f"p {difference:.0e}, log-loss {rise:+.1e}"
    if exact:
        return words, [f"probabilities differ by {difference:.1e}"]
    if rise > MOST_WORSE * recorded["log_loss"] + NEGLIGIBLE_LOSS:
        return words, [f"log-loss {recorded['log_loss']:.4g} -> {found['log_loss']:.4g}"]
    return ("tolerance: " if difference <= SOLVED_ALIKE else "other: ") + words, []


def _difference(recorded, found) -> float:
    if len(recorded) != len(found):
        return np.inf
    return float(np.abs(np.subtract(recorded, found)).max())


def _certificates(found):
    if "bound" not in found:
        return []
    failures = []
    if found["bound"] > MOST_SUBOPTIMAL:
        failures.append(f"suboptimality {found['bound']:.1e}")
    if found["bound"] > HONEST * found["claimed"] + ROUNDING:
        failures.append(f"certificate {found['claimed']:.1e} is below the oracle's {found['bound']:.1e}")
    return failures


def _ratio(old, new, slack) -> float:
    """New by old, one where both are negligible."""
    if max(old, new) <= slack:
        return 1.0
    return new / old if old else np.inf
