"""Worlds with the contexts of a log: rows are drawn again, and what an arm pays given a row is a
model whose coefficients are drawn from what the log leaves open.

How often an arm pays is a logistic function of the context, how much a log-linear one (a linear one
where rewards have both signs) with the residuals of the arm drawn again. Every coefficient is one
draw from its posterior, in which arms are shrunk towards each other or are alike (`stats.between`),
so that an interaction that one arm shows by luck is not taken at its word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.env.contextual import ContextBlock, Instance
from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import ArmSummary
from zib.stats.between import Values
from zib.stats.regression import Scaling, scaling

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_ROWS = 5_000  # of contexts that worlds draw from
FEWEST = 5  # non-zero rewards for each coefficient of an arm
STEPS = 50
RIDGE = 0.1  # observations that hold a coefficient near 0, so that separated rows have a fit
WORLDS_KEPT = 256


class Coefficients:
    """Coefficients of all arms: estimates, and draws of what they may truly be."""

    def __init__(self, value: Array, variance: Array, scale: float) -> None:
        self._columns = [Values(v, s, scale) for v, s in zip(value.T, variance.T, strict=True)]
        odds = np.array([column.log_odds for column in self._columns])
        self._apart = 1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0)))

    def draw(self, rng: np.random.Generator) -> Array:
        """Return one possible truth, (arms, coefficients)."""
        apart = rng.random(self._apart.size) < self._apart
        drawn = [c.draw(rng, apart=bool(a)) for c, a in zip(self._columns, apart, strict=True)]
        return np.column_stack(drawn)


def _independent(design: Array, weight: Array) -> Array:
    """Return 1 and uncorrelated combinations of the other columns that say the same.

    Coefficients are drawn one by one, which is right where their estimates do not depend on each
    other; columns that follow from others, as of values of a category, are left out.
    """
    x = design[:, 1:]
    share = weight / weight.sum()
    values, vectors = np.linalg.eigh((x * share[:, None]).T @ x)
    kept = values > 1e-6 * max(float(values.max(initial=0.0)), 1e-300)
    return np.hstack([design[:, :1], x @ (vectors[:, kept] / np.sqrt(values[kept]))])


class _Fit(NamedTuple):
    coef: Array
    variance: Array


def _logistic(x: Array, y: Array) -> _Fit:
    from scipy.special import expit

    coef = np.zeros(x.shape[1])
    share = (y.sum() + 0.5) / (y.size + 1.0)
    coef[0] = math.log(share / (1.0 - share))
    for _ in range(STEPS):
        p = expit(np.clip(x @ coef, -30.0, 30.0))
        hold = RIDGE * coef
        hold[0] = 0.0
        information = (x * (p * (1.0 - p))[:, None]).T @ x + RIDGE * np.eye(coef.size)
        step = np.linalg.solve(information, x.T @ (y - p) - hold)
        coef = coef + step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-8:
            break
    return _Fit(coef, np.diag(np.linalg.inv(information)).copy())


def _linear(x: Array, y: Array) -> _Fit:
    gram = x.T @ x + 1e-6 * np.eye(x.shape[1])
    coef = np.linalg.solve(gram, x.T @ y)
    left = max(y.size - x.shape[1], 1)
    variance = float(((y - x @ coef) ** 2).sum()) / left
    errors = max(variance, 1e-20) * np.diag(np.linalg.inv(gram))
    return _Fit(np.asarray(coef, dtype=np.float64), np.asarray(errors, dtype=np.float64))


class ContextWorld(Instance):
    """One possible truth: the rows of the log, and what each arm pays in each of them."""

    def __init__(
        self, features: Array, share: Array, probs: Array, means: Array, rest: _Rest
    ) -> None:
        self._features, self._share = features, share
        self._probs, self._means, self._rest = probs, means, rest
        self.n_arms = self.n_actions = probs.shape[1]
        self.n_features = (features.shape[1], features.shape[1])
        weight = np.diff(share, prepend=0.0)
        expected = probs * means
        self.arm_means = weight @ expected
        self.best_mean = float(weight @ expected.max(axis=1))

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        n = block.count.size
        u = rng.random((n, 3))
        row = np.minimum(np.searchsorted(self._share, u[:, 0], side="right"), self._share.size - 1)
        paid = u[:, 1, None] < self._probs[row]
        block.mean[:] = self._probs[row] * self._means[row]
        block.reward[:] = np.where(paid, self._rest.around(self._means[row], u[:, 2]), 0.0)
        block.arms[:] = np.arange(self.n_arms)
        block.count[:] = self.n_arms
        block.z[:] = self._features[row][:, :, None]
        block.w[:] = block.z


class _Rest:
    """What the context does not explain of magnitudes: factors, or additions, by arm, sorted."""

    def __init__(self, parts: Sequence[Array], *, scaled: bool) -> None:
        self._scaled = scaled
        centred = [p / p.mean() if scaled else p - p.mean() for p in map(np.sort, parts)]
        self._values = np.concatenate(centred)
        self._size = np.array([part.size for part in centred])
        self._start = np.cumsum(self._size) - self._size

    def around(self, means: Array, u: Array) -> Array:
        """Return magnitudes, all arms at the same level `u` of their laws."""
        place = self._start + np.minimum((u[:, None] * self._size).astype(np.int64), self._size - 1)
        drawn = self._values[place]
        return np.asarray(means * drawn if self._scaled else means + drawn)


class ContextWorlds:
    """A new `ContextWorld` for every replication, drawn from what the log leaves open.

    Attributes
    ----------
    kept
        The arms that take part: those with data.
    alike
        Always 0: worlds with contexts are drawn where the test of context × arm has rejected that
        arms are alike.
    """

    alike = 0.0

    def __init__(self, found: Collected, arms: Sequence[ArmSummary], unit: float) -> None:
        self.kept = [k for k, arm in enumerate(arms) if arm.rows > 0]
        self.n_arms = self.n_actions = len(self.kept)
        paid = found.context_reward != 0.0
        # rows that paid and rows that did not are kept in other proportions than the log has
        kept = np.array([(~paid).sum(), paid.sum()], dtype=np.float64)
        rows = np.array([found.n_rows - found.n_paid, found.n_paid], dtype=np.float64)
        rate = rows / np.maximum(kept, 1.0)
        weight = np.where(paid, rate[1], rate[0])
        self._scaling: Scaling = scaling(found.context, weight)
        design = self._scaling.design(found.context)
        self.n_features = (design.shape[1], design.shape[1])
        directions = _independent(design, weight)
        self._fit(found, directions, paid, math.log(rate[1] / rate[0]) if kept.all() else 0.0, unit)
        order = np.random.default_rng(0).permutation(len(design))[:MOST_ROWS]
        self._features = np.ascontiguousarray(design[order])
        self._directions = directions[order]
        share = np.cumsum(weight[order])
        self._share = share / share[-1]
        self._world = lru_cache(WORLDS_KEPT)(self._make)

    def _fit(
        self, found: Collected, design: Array, paid: NDArray[np.bool_], offset: float, unit: float
    ) -> None:
        width, enough = design.shape[1], FEWEST * design.shape[1]
        reward = found.context_reward / unit
        self._scaled = found.negative in (0, found.n_paid)
        self._sign = -1.0 if self._scaled and found.negative else 1.0
        nothing = _Fit(np.zeros(width), np.full(width, np.inf))
        often, much, rests = [], [], []
        for k in self.kept:
            own = found.context_arm == k
            payers = own & paid
            some = int(payers.sum()) >= enough and int((own & ~paid).sum()) >= enough
            often.append(_logistic(design[own], paid[own].astype(np.float64)) if some else nothing)
            y = reward[payers]
            y = np.log(np.abs(y)) if self._scaled else y
            fit = _linear(design[payers], y) if y.size >= enough else nothing
            much.append(fit)
            left = y - design[payers] @ fit.coef if y.size >= enough else np.zeros(0)
            rests.append(np.exp(left) if self._scaled else left)
        pooled = np.concatenate(rests)
        self._rest = _Rest([r if r.size else pooled for r in rests], scaled=self._scaled)
        smear = np.array([r.mean() if r.size else pooled.mean() for r in rests])
        self._smear = smear if self._scaled else np.ones(len(rests))
        # how often: the sample has other proportions than the log, which only moves the intercept
        values = np.stack([fit.coef for fit in often])
        values[:, 0] += offset
        self._often = Coefficients(values, np.stack([fit.variance for fit in often]), 1.0)
        size = 1.0 if self._scaled else float(np.sqrt(np.mean(reward[paid] ** 2)))
        self._much = Coefficients(
            np.stack([fit.coef for fit in much]), np.stack([fit.variance for fit in much]), size
        )

    def instance(self, rng: np.random.Generator) -> ContextWorld:
        """Draw one world; the same for every policy of a replication."""
        found: ContextWorld = self._world(int(rng.integers(2**62)))
        return found

    def _make(self, seed: int) -> ContextWorld:
        from scipy.special import expit

        rng = np.random.default_rng(seed)
        probs = expit(self._directions @ self._often.draw(rng).T)
        means = self._directions @ self._much.draw(rng).T
        if self._scaled:
            means = self._sign * np.exp(np.clip(means, -300.0, 300.0)) * self._smear
        return ContextWorld(self._features, self._share, probs, means, self._rest)

    def __repr__(self) -> str:
        return f"<ContextWorlds: {self.n_arms} arms, {len(self._features)} rows>"
