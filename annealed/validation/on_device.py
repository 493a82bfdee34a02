"""Validation on held-out samples on a device, where their logits stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from annealed.arrays import HOST, SHARE_OF_MEMORY, Place
from annealed.path import Validation
from annealed.problems.array_gibbs import deviations, margins, scaled_losses, scaled_moments
from annealed.problems.device_passes import TEMPORARIES, HeldOutOnDevice, HeldOutPart
from annealed.rows import ArrayDesign
from annealed.validation.calibration import least_log_scale, penalty
from annealed.validation.selection import HeldOutValidator


@dataclass
class DeviceValidator(HeldOutValidator):
    """A `HeldOutValidator` of samples at a `place`.

    sample_weight : of all samples, or of the validation set `X`; on the device
    """

    place: Place = HOST
    sample_weight: Any = None
    _shares: list = field(default_factory=list, init=False)
    _held_out: Any = field(default=None, init=False)

    validate_all = HeldOutValidator._validate_each

    def validate(self, problem, parameters, temperature):
        place, n_rows = self.place, self.n_rows
        parts = self._kept(problem, lambda: self._parts(problem, parameters, temperature))
        (sums,) = place.host(sum(margins(place, part.deviation) @ part.weight for part in parts()))
        margin = float(sums) / n_rows
        if self.calibrate:

            def moments(scale):
                sums = sum(scaled_moments(place, float(scale), part.deviation) @ part.weight for part in parts())
                return place.host(sums)[0] / n_rows

            self.log_scale = float(least_log_scale(moments, n_rows, margin, self.log_scale))
        scale = float(np.exp(self.log_scale))
        if self.score_point is not None:
            return self._by_scorer(self.score_point, problem, parameters, temperature, scale)
        losses = place.zeros((len(self._fold_weight),))
        for number, part in enumerate(parts()):
            losses = losses + scaled_losses(place, scale, part.deviation) @ self._share(number, part)
        losses = place.host(losses)[0]
        scale_penalty = penalty(self.log_scale, losses.sum() / n_rows, margin, n_rows)
        return Validation(-losses / self._fold_weight, scale, penalty=scale_penalty)

    def _share(self, number, part):
        """Weights of a part's samples in each fold, (n_rows, n_folds); they do not depend on the temperature."""
        if number == len(self._shares):
            folds = self.place.whole(np.arange(len(self._fold_weight)))
            self._shares.append(part.weight[:, None] * self.place.wide(part.fold[:, None] == folds[None, :]))
        return self._shares[number]

    def _kept(self, problem, make):
        """A function that returns the parts: from memory if that has room, otherwise computed at each call."""
        needed = len(self.labels) * problem.n_classes * self.place.row_bytes
        if needed > (1 - SHARE_OF_MEMORY) * self.place.free_bytes():
            return make
        parts = list(make())
        return lambda: parts

    def _parts(self, problem, parameters, temperature):
        if self.X is None:
            if self._held_out is None or self._held_out.problem is not problem:
                self._held_out = HeldOutOnDevice(problem, self.held_out)
            yield from self._held_out.parts(parameters, temperature, self.sample_weight)
            return
        place, weight = self.place, self.sample_weight[:, None]
        design = ArrayDesign(self.X, place.whole(self.labels), weight, None, problem.n_classes, place)
        convert = place.wide if problem.predictor.needs_digits else place.row
        reported = problem.report(parameters[:1, ...], temperature, slice(0, 1))
        arrays = {name: convert(array[0, ...]) for name, array in reported.items()}

        def part(block):
            logits = place.row(problem.predictor.logits(block.raw, arrays, temperature))
            deviation = deviations(place, logits, block.labels)
            return HeldOutPart(deviation, place.wide(block.weight[:, 0]), block.labels * 0)

        with place.products_in(problem.design.matmul_precision):
            yield from design.map_blocks(part, n_fits=TEMPORARIES)
