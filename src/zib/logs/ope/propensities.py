"""Probabilities with which the log chose its arms: logged, given, by strata or estimated."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.logs.log import Log
from zib.logs.ope.policies import checked_probabilities
from zib.logs.passes import Array, Block, Codes, RowSampler, blocks, joined_samples, read
from zib.stats.balance import Terms, terms_of
from zib.stats.regression import fit_multinomial
from zib.stats.sampling import folds_of

__all__ = ["Strata", "propensities_by"]

MOST_STRATA = 100_000
_RIDGE = 1.0  # of the coefficients of standardised terms: separated arms have a finite fit
_SMALLEST = 1e-9  # of a fitted probability: what was played had a chance
CONFOUNDED = (
    "propensities are estimated from the log: values are only right if the context holds every "
    "reason why one arm was chosen and not another"
)


class Strata:
    """Propensities of an experiment that was randomised within strata: shares of the arms.

    Parameters
    ----------
    columns
        Columns of the context that define the strata, by name. A column of text, which the log
        keeps as "risk=HIGH", "risk=LOW", …, is named by its own name, "risk".

    Examples
    --------
    >>> Strata(["risk", "wave"])
    Strata(['risk', 'wave'])
    """

    def __init__(self, columns: Sequence[str]) -> None:
        names = [columns] if isinstance(columns, str) else validate.words("columns", columns)
        if not names:
            raise InvalidParameterError("`columns` must name at least one column; got none")
        self.columns = list(names)

    def __repr__(self) -> str:
        return f"Strata({self.columns!r})"


def propensities_by(log: Any, columns: Sequence[str]) -> Any:
    """Return the log with the share of each row's arm within its stratum as propensity.

    Right where arms were drawn at random within strata. The log must be in memory; for a streamed
    one give ``propensities=Strata(columns)`` to `evaluate`.

    Examples
    --------
    >>> from zib.logs import LoggedData
    >>> log = LoggedData.from_arrays(
    ...     ["a", "b", "a", "a"], [0, 1, 0, 2], context=[[0], [0], [1], [1]], context_names=["wave"]
    ... )
    >>> propensities_by(log, ["wave"]).propensity.tolist()
    [0.5, 0.5, 1.0, 1.0]
    """
    if not hasattr(log, "with_propensity"):
        raise InvalidParameterError(
            "`log` must be in memory; for a streamed log give propensities=Strata(...) to evaluate"
        )
    source = StrataSource(Strata(columns), log)
    read(log, source)
    source.finish()
    return log.with_propensity(np.concatenate([source.of(block) for block in blocks(log)]))


class Source:
    """Where propensities come from. `look` sees every row once before `of` is asked."""

    description = "logged"
    estimated = False

    def look(self, block: Block) -> None:
        """Learn from the rows of a block."""

    def fresh(self) -> Source:
        """Return one that has seen nothing; one that learns nothing returns itself."""
        return self

    def merge(self, other: Any) -> None:
        """Take what was learned from the rows that follow."""

    def finish(self) -> None:
        """Be ready to answer."""

    def of(self, block: Block) -> Array:
        """Return the probability of the arm played in each row."""
        raise NotImplementedError

    def support(self, block: Block) -> NDArray[np.bool_] | None:
        """Return which arms could occur in each row, (n, K), where that is known."""
        return None


class LoggedSource(Source):
    """The column of the log."""

    def of(self, block: Block) -> Array:
        """Return the probability of the arm played in each row."""
        if block.propensity is None:
            raise InvalidParameterError("`log` must have propensities in every row")
        return block.propensity


class ArraySource(Source):
    """One number per row, given."""

    description = "given per row"

    def __init__(self, values: Any, n_rows: int) -> None:
        self._values = validate.vector("propensities", values, 0.0, 1.0, closed="right")
        if self._values.size != n_rows:
            raise InvalidParameterError(
                f"`propensities` must have one entry per row, {n_rows}; got {self._values.size}"
            )

    def of(self, block: Block) -> Array:
        """Return the probability of the arm played in each row."""
        return self._values[block.start : block.start + block.size]


class FunctionSource(Source):
    """Probabilities of all arms as a function of the context, given."""

    description = "given as a policy"

    def __init__(self, function: Callable[[Array], Any], n_arms: int) -> None:
        self._function, self._n_arms = function, n_arms

    def _all(self, block: Block) -> Array:
        found = self._function(block.context)
        return checked_probabilities("`propensities`", found, block.size, self._n_arms)

    def of(self, block: Block) -> Array:
        """Return the probability of the arm played in each row."""
        return self._all(block)[np.arange(block.size), block.arm]

    def support(self, block: Block) -> NDArray[np.bool_]:
        """Return which arms could occur in each row, (n, K)."""
        return self._all(block) > 0.0


class StrataSource(Source):
    """Shares of the arms within strata; without columns, within the whole log."""

    def __init__(self, strata: Strata | None, log: Log, randomised: bool = False) -> None:
        self._at: list[int] = []
        self._n_arms = len(log.arms)
        self._number: dict[tuple[float, ...], int] = {}
        self._counts: NDArray[np.int64] = np.zeros((8, self._n_arms), dtype=np.int64)
        self.description = f"shares within {'the log' if strata is None else strata!r}"
        self.estimated = strata is None and not randomised
        if randomised:
            self.description = "randomised, with the shares of the log"
        for name in [] if strata is None else strata.columns:
            found = [
                j
                for j, known in enumerate(log.context_names)
                if known == name or known.startswith(f"{name}=")
            ]
            if not found:
                known = ", ".join(map(repr, log.context_names)) or "none"
                raise InvalidParameterError(
                    f"`columns` must be context columns of the log ({known}); "
                    f"got {validate.shown(name)}"
                )
            self._at += found

    def _strata(self, block: Block) -> Codes:
        """Return the number of the stratum of each row; new strata get the next numbers."""
        code = np.zeros(block.size, dtype=np.int64)
        for j in self._at:  # one column at a time: sorting numbers is much faster than rows
            _, part = np.unique(block.context[:, j], return_inverse=True)
            _, code = np.unique(code * (int(part.max()) + 1) + part, return_inverse=True)
        _, first, code = np.unique(code, return_index=True, return_inverse=True)
        keys = [tuple(row) for row in block.context[first][:, self._at].tolist()]
        numbers = [self._number.setdefault(key, len(self._number)) for key in keys]
        return np.asarray(numbers, dtype=np.int64)[code]

    def look(self, block: Block) -> None:
        """Count the arms of each stratum."""
        stratum = self._strata(block)
        n = len(self._number)
        self._make_room(n)
        np.add.at(self._counts, (stratum, block.arm), 1)

    def _make_room(self, n: int) -> None:
        if n > MOST_STRATA:
            raise InvalidParameterError(
                f"`columns` must define at most {MOST_STRATA} strata; there are more: "
                "use columns with few different values"
            )
        if n > len(self._counts):
            larger = np.zeros((2 * n, self._n_arms), dtype=np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger

    def fresh(self) -> StrataSource:
        """Return one that has seen nothing."""
        out = copy.copy(self)
        out._number, out._counts = {}, np.zeros((8, self._n_arms), dtype=np.int64)
        return out

    def merge(self, other: StrataSource) -> None:
        """Take the counts of other rows."""
        at = [self._number.setdefault(key, len(self._number)) for key in other._number]
        self._make_room(len(self._number))
        self._counts[at] += other._counts[: len(at)]

    def of(self, block: Block) -> Array:
        """Return the share of the arm played in each row within its stratum."""
        stratum = self._strata(block)
        total = self._counts.sum(axis=1)
        out: Array = self._counts[stratum, block.arm] / total[stratum]
        return out

    def support(self, block: Block) -> NDArray[np.bool_]:
        """Return which arms occur in the stratum of each row, (n, K)."""
        return self._counts[self._strata(block)] > 0


class LogisticSource(Source):
    """Multinomial logistic regression of the arm on terms of the context, cross-fitted.

    Rows of a fold get the probabilities of a model fitted on the others, so that no row pulls its
    own probability up.
    """

    description = "estimated by multinomial logistic regression"
    estimated = True

    def __init__(self, n_arms: int, fit_rows: int, seed: int, folds: int = 2) -> None:
        self._n_arms, self._seed, self._folds = n_arms, seed, folds
        room = max(fit_rows // (folds - 1), 50)
        self._samplers = [RowSampler(room, seed, 3, balanced=False) for _ in range(folds)]
        self._fitted: list[tuple[Terms, Array]] = []

    def _fold(self, block: Block) -> Codes:
        return folds_of(self._seed, block.start, block.size, self._folds, block.cluster)

    def look(self, block: Block) -> None:
        """Draw rows to fit on."""
        fold = self._fold(block)
        for f, sampler in enumerate(self._samplers):
            sampler.add(block, np.flatnonzero(fold == f))

    def fresh(self) -> LogisticSource:
        """Return one that has seen nothing."""
        return copy.deepcopy(self)

    def merge(self, other: LogisticSource) -> None:
        """Take what was drawn from other rows."""
        for sampler, there in zip(self._samplers, other._samplers, strict=True):
            sampler.merge(there)

    def finish(self) -> None:
        """Fit."""
        samples = [sampler.sample() for sampler in self._samplers]
        self._samplers = []
        for f in range(self._folds):
            sample = joined_samples([each for g, each in enumerate(samples) if g != f])
            terms = terms_of(sample.context)
            design = _with_constant(terms.of(sample.context))
            beta = fit_multinomial(design, sample.arm, self._n_arms, penalty=_RIDGE)
            self._fitted.append((terms, beta))

    def all(self, block: Block) -> Array:
        """Return the fitted probabilities of all arms, (n, K)."""
        from scipy.special import softmax

        fold = self._fold(block)
        out = np.empty((block.size, self._n_arms))
        for f, (terms, beta) in enumerate(self._fitted):
            rows = np.flatnonzero(fold == f)
            design = _with_constant(terms.of(block.context[rows]))
            out[rows] = softmax(design @ beta, axis=1)
        return np.maximum(out, _SMALLEST)

    def of(self, block: Block) -> Array:
        """Return the fitted probability of the arm played in each row."""
        return self.all(block)[np.arange(block.size), block.arm]


def _with_constant(x: Array) -> Array:
    return np.hstack([np.ones((len(x), 1)), x])


def resolve_source(propensities: Any, log: Log, fit_rows: int, seed: int, folds: int = 2) -> Source:
    """Return where propensities come from, or raise."""
    if isinstance(propensities, str):
        validate.choice("propensities", propensities, ("logged", "randomised", "estimated"))
        if propensities == "randomised":
            return StrataSource(None, log, randomised=True)
        if propensities == "logged":
            if not log.has_propensity:
                raise InvalidParameterError(
                    "`log` has no propensities; give propensities=Strata([...]) if arms were drawn "
                    "at random within strata, 'randomised' or a mapping of arms to probabilities "
                    "if by fixed shares, or 'estimated' if neither is known"
                )
            return LoggedSource()
        warnings.warn(CONFOUNDED, UserWarning, stacklevel=3)
        if not log.context_names:
            return StrataSource(None, log)
        return LogisticSource(len(log.arms), fit_rows, seed, folds)
    if isinstance(propensities, Strata):
        return StrataSource(propensities, log)
    if isinstance(propensities, Mapping):
        vector = shares_of("propensities", propensities, log.arms)
        source = FunctionSource(
            lambda context: np.broadcast_to(vector, (len(context), vector.size)), len(log.arms)
        )
        source.description = "randomised, with given shares"
        return source
    if callable(propensities):
        return FunctionSource(propensities, len(log.arms))
    return ArraySource(propensities, log.n_rows)


def shares_of(name: str, given: Mapping[Hashable, float], arms: tuple[Hashable, ...]) -> Array:
    """Return the probabilities of the arms, in their order, or raise."""
    unknown = [arm for arm in given if arm not in arms]
    if unknown:
        raise InvalidParameterError(
            f"`{name}` must be about arms of the log; got {validate.shown(unknown[0])}"
        )
    missing = [arm for arm in arms if arm not in given]
    if missing:
        raise InvalidParameterError(
            f"`{name}` must give a share for every arm of the log, 0 for one that is never played; "
            f"got none for {validate.shown(missing[0])}"
        )
    out: Array = validate.vector(name, [given[arm] for arm in arms], 0.0, 1.0)
    if abs(out.sum() - 1.0) > 1e-6:
        raise InvalidParameterError(
            f"`{name}` must sum to 1 over the arms; they sum to {out.sum():.6g}"
        )
    return out
