"""The first pass over a log: counts, rows to fit on, models of the reward."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError
from zib.logs.log import Log
from zib.logs.ope.propensities import Source
from zib.logs.ope.rows import Array, Block, RowSampler, folds_of, joined_samples

_FOLD_SALT = 2


class Survey:
    """The first pass: counts, rows to fit on, propensities to be learned."""

    def __init__(
        self, log: Log, source: Source, model: Any, folds: int, fit_rows: int, seed: int
    ) -> None:
        self.source, self.folds, self.seed = source, folds, seed
        self.n_arms = len(log.arms)
        self.counts: NDArray[np.int64] = np.zeros(self.n_arms, dtype=np.int64)
        self.nonzero = 0
        self.low = self.high = 0.0  # the range of rewards, zero included
        self._model = model
        self._width = len(log.context_names)
        balanced = bool(getattr(model, "weighted", False))
        room = max(fit_rows // (folds - 1), 50)
        self._samplers = [
            RowSampler(room, seed, _FOLD_SALT, balanced) for _ in range(folds if model else 0)
        ]
        self.models: list[Any] = []

    def look(self, block: Block) -> None:
        """Check and count the rows of a block, and draw from them."""
        if block.context.shape != (block.size, self._width) or not (
            np.isfinite(block.reward).all() and np.isfinite(block.context).all()
        ):
            raise InvalidParameterError(
                "`log` must hold finite rewards and a finite context in every row"
            )
        if block.arm.min() < 0 or block.arm.max() >= self.n_arms:
            raise InvalidParameterError(f"`log` must hold codes of arms below {self.n_arms}")
        self.counts += np.bincount(block.arm, minlength=self.n_arms)
        self.nonzero += int(np.count_nonzero(block.reward))
        self.low = min(self.low, float(block.reward.min()))
        self.high = max(self.high, float(block.reward.max()))
        self.source.look(block)
        if self._samplers:
            fold = folds_of(self.seed, block.start, block.size, self.folds)
            for f, sampler in enumerate(self._samplers):
                sampler.add(block, np.flatnonzero(fold == f))

    def finish(self) -> None:
        """Fit what is to be fitted."""
        self.source.finish()
        samples = [sampler.sample() for sampler in self._samplers]
        self._samplers = []
        for f in range(len(samples)):
            s = joined_samples([sample for g, sample in enumerate(samples) if g != f])
            fresh = copy.deepcopy(self._model)
            if getattr(fresh, "weighted", False):
                fresh.fit(s.arm, s.context, s.reward, self.n_arms, weight=s.weight)
            else:
                fresh.fit(s.arm, s.context, s.reward, self.n_arms)
            self.models.append(fresh)

    def predict(self, block: Block) -> Array:
        """Return predictions for every row and arm, by the model of the other folds."""
        fold = folds_of(self.seed, block.start, block.size, self.folds)
        out = np.empty((block.size, self.n_arms))
        for f, model in enumerate(self.models):
            rows = np.flatnonzero(fold == f)
            if not rows.size:
                continue
            found = np.asarray(model.predict(block.context[rows]), dtype=np.float64)
            if found.shape != (rows.size, self.n_arms) or not np.isfinite(found).all():
                raise InvalidParameterError(
                    "`model` must predict one finite number per row and arm, shape "
                    f"({rows.size}, {self.n_arms}); got shape {found.shape}"
                )
            out[rows] = found
        return out
