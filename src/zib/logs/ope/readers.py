"""The two readers of an evaluation: one fits models, the other adds up what estimators need."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np

from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError
from zib.logs.log import Log
from zib.logs.ope.estimators import (
    ESTIMATORS,
    ON_POLICY,
    Kind,
    Resampled,
    RowValues,
    columns,
    summarise,
)
from zib.logs.ope.evaluation import GRADES, Diagnostics, Difference, Value, WeightSums, grade
from zib.logs.ope.policies import Target
from zib.logs.ope.propensities import Source
from zib.logs.passes import Array, Block, RowSampler, Totals, joined_samples, merge_parts
from zib.stats import intervals
from zib.stats.clusters import ClusteredMoments
from zib.stats.moments import JointMoments
from zib.stats.sampling import folds_of

_FOLD_SALT = 2
Limits = tuple[float, float]
UNKNOWN: Limits = (math.nan, math.nan)


class Survey:
    """The first pass: counts, rows to fit on, propensities to be learned."""

    def __init__(
        self, log: Log, source: Source, model: Any, folds: int, fit_rows: int, seed: int
    ) -> None:
        self.source, self.folds, self.seed = source, folds, seed
        self.n_arms = len(log.arms)
        self.totals = Totals(log)
        self._model = model
        balanced = bool(getattr(model, "weighted", False))
        room = max(fit_rows // (folds - 1), 50)
        self._samplers = [
            RowSampler(room, seed, _FOLD_SALT, balanced) for _ in range(folds if model else 0)
        ]
        self.models: list[Any] = []
        self.clustered = False

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest reward, zero included."""
        return min(self.totals.lowest, 0.0), max(self.totals.highest, 0.0)

    def look(self, block: Block) -> None:
        """Check and count the rows of a block, and draw from them."""
        self.totals.look(block)
        self.source.look(block)
        self.clustered = block.cluster is not None
        if self._samplers:
            fold = folds_of(self.seed, block.start, block.size, self.folds, block.cluster)
            for f, sampler in enumerate(self._samplers):
                sampler.add(block, np.flatnonzero(fold == f))

    def fresh(self) -> Survey:
        """Return a survey of nothing."""
        out = copy.copy(self)
        out.source = self.source.fresh()
        out.totals, out._samplers = copy.deepcopy(self.totals), copy.deepcopy(self._samplers)
        return out

    def merge(self, other: Survey) -> None:
        """Take what was found in the rows that follow."""
        merge_parts(self, other, "_model", "models")

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

    def parts(self, block: Block) -> tuple[Array, Array]:
        """Return chance and size of a reward for every row and arm, by the other folds' model."""
        fold = folds_of(self.seed, block.start, block.size, self.folds, block.cluster)
        out = np.empty((2, block.size, self.n_arms))
        for f, model in enumerate(self.models):
            rows = np.flatnonzero(fold == f)
            out[:, rows] = model.parts(block.context[rows])
        return out[0], out[1]

    def predict(self, block: Block) -> Array:
        """Return predictions for every row and arm, by the model of the other folds."""
        fold = folds_of(self.seed, block.start, block.size, self.folds, block.cluster)
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


def _propensities(source: Source, block: Block) -> Array:
    """Return the probability of the arm played in each row, or raise."""
    b = source.of(block)
    bad = ~((b > 0.0) & (b <= 1.0 + 1e-9))
    if bad.any():
        at = int(np.argmax(bad))
        raise InvalidParameterError(
            f"`propensities` must lie in (0, 1] for the arm that was played; "
            f"row {block.start + at + 1} has {float(b[at])!r}"
        )
    return b


class LargestWeights:
    """Finds the largest weight of each policy, by which replay divides."""

    def __init__(self, targets: list[Target], source: Source) -> None:
        self._targets, self._source = targets, source
        self.found: Array = np.zeros(len(targets))

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        b = _propensities(self._source, block)
        for j, target in enumerate(self._targets):
            if not target.logging:
                chosen = target.of(block)[np.arange(block.size), block.arm]
                self.found[j] = max(self.found[j], float((chosen / b).max()))

    def fresh(self) -> LargestWeights:
        """Return a reader that has seen nothing."""
        return LargestWeights(self._targets, self._source)

    def merge(self, other: LargestWeights) -> None:
        """Take what was found in other rows."""
        np.maximum(self.found, other.found, out=self.found)


class _Estimate(NamedTuple):
    """One policy by one estimator; `kinds` and `at` also hold the baseline, if it is another."""

    policy: int
    estimator: str
    kind: Kind
    at: list[int]  # its columns among all columns
    pair: tuple[Kind, ...]
    pair_at: list[int]
    moments: JointMoments


class EvaluationPass:
    """The pass that evaluates: moments of the estimators' columns and sums of weights."""

    def __init__(
        self,
        log: Log,
        targets: list[Target],
        base: int | None,
        names: tuple[str, ...],
        survey: Survey,
        clip: float,
        seed: int,
    ) -> None:
        self._arms, self._targets, self._base, self._names = log.arms, targets, base, names
        self._survey, self._clip, self._seed = survey, clip, seed
        self.largest = LargestWeights(targets, survey.source)
        self._reset()
        # Rewards are counted in units of about the largest: cubes of huge ones stay finite. A power
        # of two, so that not a bit changes.
        low, high = survey.range
        largest = max(high, -low)
        self._unit = 2.0 ** math.frexp(largest)[1] if largest > 0.0 else 1.0
        self._resampled: Resampled | None = None
        self._clustered: ClusteredMoments | None = None
        kinds = {
            (j, e): ON_POLICY if t.logging else ESTIMATORS[e]
            for j, t in enumerate(targets)
            for e in names
        }
        ends = np.cumsum([kind.width for kind in kinds.values()]).tolist()
        at = {
            key: list(range(end - kind.width, end))
            for (key, kind), end in zip(kinds.items(), ends, strict=True)
        }
        self._width = ends[-1]
        self._estimates: list[_Estimate] = []
        for (j, e), kind in kinds.items():
            pair: tuple[Kind, ...] = (kind,)
            pair_at = at[j, e]
            if base is not None and j != base:
                pair, pair_at = (kind, kinds[base, e]), at[j, e] + at[base, e]
            moments = JointMoments(len(pair_at))
            self._estimates.append(_Estimate(j, e, kind, at[j, e], pair, pair_at, moments))

    def _reset(self) -> None:
        names, targets = ("raw", *self._names), self._targets
        self._missing = np.zeros((len(targets), self._survey.n_arms))
        self._cut = np.zeros(len(targets))
        self._sums = [{name: WeightSums() for name in names} for _ in targets]
        self._rows = 0

    def fresh(self) -> EvaluationPass:
        """Return a pass with the same policies and models that has seen nothing."""
        out = copy.copy(self)
        out._reset()
        out._estimates = [
            one._replace(moments=JointMoments(len(one.pair_at))) for one in self._estimates
        ]
        out._resampled = None if self._resampled is None else self._resampled.fresh()
        return out

    def merge(self, other: EvaluationPass) -> None:
        """Take what was found in the rows that follow."""
        given = ("_survey", "_targets", "largest", "_unit", "_estimates")
        merge_parts(self, other, *given, "_missing", "_cut", "_rows")
        self._missing += other._missing
        self._cut += other._cut
        self._rows += other._rows
        for one, there in zip(self._estimates, other._estimates, strict=True):
            one.moments.merge(there.moments)

    def resample(self, replicates: int) -> None:
        """Also keep what the bootstrap needs."""
        groups = [estimate.pair_at for estimate in self._estimates]
        self._resampled = Resampled(self._width, groups, replicates, self._seed)

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        b = _propensities(self._survey.source, block)
        rows = np.arange(block.size)
        paid = block.reward != 0.0
        reward = block.reward / self._unit
        q = self._survey.predict(block) / self._unit if self._survey.models else None
        taken = None if q is None else q[rows, block.arm]
        support = self._survey.source.support(block)
        never = self._survey.totals.rows == 0
        uniform = None
        if "replay" in self._names:
            uniform = stream(self._seed, Role.POLICY, 11, block.number).random(block.size)
        everything = np.empty((block.size, self._width))
        per_target: list[Any] = []
        for j, target in enumerate(self._targets):
            if target.logging:
                self._sums[j]["raw"].add(np.ones(block.size), paid)
                per_target.append(None)
                continue
            pi = target.of(block)
            weight = pi[rows, block.arm] / b
            unseen = np.broadcast_to(never, pi.shape) if support is None else never | ~support
            if unseen.any():
                self._missing[j] += (pi * unseen).sum(axis=0)
            predicted = None if q is None else np.einsum("nk,nk->n", pi, q)
            accepted = None
            if uniform is not None:
                largest = self.largest.found[j] or 1.0
                accepted = (uniform < weight / largest).astype(np.float64)
            values = RowValues(weight, reward, taken, predicted, accepted)
            per_target.append(values)
            self._cut[j] += float(np.maximum(weight - self._clip, 0.0).sum())
            self._sums[j]["raw"].add(weight, paid)
            for name, used in _weights_used(values, self._names, self._clip).items():
                self._sums[j][name].add(used, paid)
        for one in self._estimates:
            values = per_target[one.policy]
            if values is None:
                everything[:, one.at] = reward[:, None]
            else:
                everything[:, one.at] = columns(one.estimator, values, self._clip)
        if block.cluster is None:
            for one in self._estimates:
                one.moments.add(everything[:, one.pair_at])
        else:
            if self._clustered is None:
                self._clustered = ClusteredMoments(self._width)
            self._clustered.add(everything, block.cluster)
        if self._resampled is not None:
            self._resampled.add(everything, block)
        self._rows += block.size

    # ------------------------------------------------------------------------------ what is found

    @property
    def clusters(self) -> int | None:
        """Number of clusters (as far as they are told apart), or None without any."""
        return None if self._clustered is None else self._clustered.n

    def diagnostics(self, j: int) -> Diagnostics:
        """Return what the weights of a policy look like."""
        target, sums = self._targets[j], self._sums[j]["raw"]
        missing = dict(target.outside)
        for arm, mass in zip(self._arms, self._missing[j] / self._rows, strict=True):
            if mass > 1e-12:
                missing[arm] = float(mass)
        total = float(sum(missing.values()))
        low, high = self._survey.range
        mean = sums.total / sums.rows
        return Diagnostics(
            policy=target.name,
            rows=sums.rows,
            matched_share=sums.matched / sums.rows,
            effective_rows=sums.effective_rows,
            nonzero=sums.paid,
            effective_nonzero=sums.effective_paid,
            largest_weight=sums.largest,
            largest_share=sums.largest_share,
            mean_weight=mean,
            mean_weight_z=sums.z_score(1.0 - total),
            cut_share=float(self._cut[j]) / sums.total if sums.total > 0 else 0.0,
            missing_mass=total,
            missing=missing,
            missing_bound=(total * low, total * high),
        )

    def values(
        self, diagnostics: tuple[Diagnostics, ...], interval: str, level: float
    ) -> tuple[Value, ...]:
        """Return value, interval and grade of every policy by every estimator."""
        out = []
        for one in self._estimates:
            target, found = self._targets[one.policy], diagnostics[one.policy]
            sums = self._sums[one.policy]
            used = sums[one.estimator] if sums[one.estimator].rows else sums["raw"]
            name = "ips" if target.logging else one.estimator
            word, reasons = grade(
                name,
                found,
                used,
                clip=self._clip,
                level=level,
                estimated=self._survey.source.estimated and not target.logging,
                clusters=self.clusters,
                remark=target.remark,
            )
            value, error, limits = self._interval(one, False, interval, level)
            known = name != "dm" and used.paid > 0
            low, high = self._widened(name, limits, found) if known else UNKNOWN
            if name == "dm":
                error = float("nan")
            out.append(Value(target.name, one.estimator, value, error, low, high, word, reasons))
        return tuple(out)

    def differences(
        self,
        values: tuple[Value, ...],
        diagnostics: tuple[Diagnostics, ...],
        interval: str,
        level: float,
    ) -> tuple[Difference, ...]:
        """Return the differences to the baseline."""
        if self._base is None:
            return ()
        by_key = {(v.policy, v.estimator): v for v in values}
        base = self._targets[self._base]
        out = []
        for one in self._estimates:
            if one.policy == self._base:
                continue
            target = self._targets[one.policy]
            both = [by_key[target.name, one.estimator], by_key[base.name, one.estimator]]
            value, error, limits = self._interval(one, True, interval, level)
            if any(np.isnan(v.low) for v in both):
                limits = UNKNOWN
            if one.estimator == "dm":
                error = float("nan")
            low, high = self._widened(one.estimator, limits, diagnostics[one.policy])
            high, low = (-x for x in self._widened(
                one.estimator, (-high, -low), diagnostics[self._base]))  # fmt: skip
            word = GRADES[max(GRADES.index(v.grade) for v in both)]
            reasons = (*both[0].reasons, *(f"{base.name}: {r}" for r in both[1].reasons))
            out.append(
                Difference(
                    target.name, base.name, one.estimator, value, error, low, high, word, reasons
                )
            )
        return tuple(out)

    def _interval(
        self, one: _Estimate, paired: bool, interval: str, level: float
    ) -> tuple[float, float, Limits]:
        kinds = one.pair if paired else (one.kind,)
        signs = np.array([1.0, -1.0])[: len(kinds)]
        moments: JointMoments | ClusteredMoments
        if self._clustered is not None:
            moments = self._clustered.part(one.pair_at if paired else one.at)
        elif len(kinds) == len(one.pair):
            moments = one.moments
        else:
            moments = one.moments.first(one.kind.width)
        value, spread = summarise(kinds, signs, moments)
        unit = self._unit
        if np.isnan(spread.error) or spread.error == 0.0:
            return unit * value, unit * spread.error, (unit * value, unit * value)
        if interval == "asymptotic":
            found = intervals.from_error(value, spread.error, level=level)
        elif interval == "corrected":
            found = intervals.skewed(value, spread.error, spread.skewness, df=spread.freedom,
                                     level=level)  # fmt: skip
        else:
            assert self._resampled is not None
            at = one.pair_at if paired else one.at
            again = self._resampled.replicate(kinds, signs, at)
            found = intervals.studentised(value, spread.error, *again, level=level)
        return unit * value, unit * spread.error, (unit * found.low, unit * found.high)

    def _widened(self, estimator: str, limits: Limits, found: Diagnostics) -> Limits:
        """Return an interval that also holds whatever the missing arms might pay."""
        if found.missing_mass == 0.0:
            return limits
        low, high = found.missing_bound
        if estimator not in ("ips", "clipped"):  # these count missing arms as zeros
            low, high = low - high, high - low
        return limits[0] + low, limits[1] + high


def _weights_used(values: RowValues, names: tuple[str, ...], clip: float) -> dict[str, Array]:
    """Return the weights of estimators that do not use them as they are."""
    out = {}
    if "clipped" in names:
        out["clipped"] = np.minimum(values.weight, clip)
    if "switch" in names:
        out["switch"] = np.where(values.weight <= clip, values.weight, 0.0)
    if values.accepted is not None:
        out["replay"] = values.accepted
    return out
