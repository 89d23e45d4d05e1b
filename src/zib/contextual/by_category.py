"""`ByCategory`: rewards that say what they are paid for, for any contextual policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from zib.contextual import policy
from zib.contextual.joint import LARGEST
from zib.contextual.links import derivative, value
from zib.contextual.per_arm import regrouped
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    WORK_ROWS,
    ZETA,
    ZETA_VARIANCE,
    lookup_policy,
    register_policy,
)
from zib.core import validate as check
from zib.core.kernel import is_interpreted
from zib.core.registry import borrowing
from zib.core.spec import Spec, converted, derived, label_of, whole
from zib.core.stacked import row_of, stacked


def _divisible(spec: Any) -> Any:
    """Return a policy that can be split by categories, or raise."""
    lookup_policy(spec)
    if isinstance(spec, ByCategory):
        raise check.InvalidParameterError("`spec` must not be split already; got ByCategory")
    if is_interpreted(spec) or not hasattr(getattr(spec, "magnitude", None), "link"):
        raise check.InvalidParameterError(
            "`spec` must be a policy with models of occurrence and magnitude that are ours, such "
            f"as LaplaceTS(); got {type(spec).__name__}"
        )
    return spec


class ByCategory(Spec):
    """One policy per category of reward: what it pays in that category, and zero otherwise.

    Parameters
    ----------
    spec
        A contextual policy, such as ``LaplaceTS()``, ``Disjoint(spec=LaplaceTS(), n_arms=3)`` or
        ``Adaptive(n_arms=3, kind="ts")``.
    categories
        Number of categories (≥ 2), 1, 2, …; a reward comes with one of them (`category` of
        `zib.ContextualBandit.update`), and with none where nothing happened.

    Notes
    -----
    A customer buys nothing, one bottle or a case; a donor gives nothing, once or every month. The
    reward is a sum of as many zero-inflated rewards as there are categories, of which at most one
    is not zero, and each has models of its own: the chance p_c of that category and the mean
    magnitude mu_c in it. The mean reward is r = Σ p_c·mu_c. One model of zero and not zero is
    wrong where the categories depend on the features in different ways, since the mean magnitude
    then is an average whose weights p_c change with the features.

    The score is the sum of the scores of the parts. For posterior sampling that is a draw of r,
    the parts taken as independent. For upper bounds it is an upper bound of r which holds where
    all parts hold, but a wide one: prefer sampling. A reward of zero says that nothing happened,
    whatever category comes with it, which does not matter for r.

    Examples
    --------
    >>> import zib
    >>> spec = zib.contextual.ByCategory(spec=zib.contextual.LaplaceTS(), categories=2)
    >>> spec.label
    'Laplace-TS, by category'
    """

    spec: Any = converted(_divisible, allowed="a compiled contextual policy")
    categories: int = whole(low=2, high=100)
    # compiled code sees fields, not the properties of a `Disjoint`
    link: Any = derived(lambda fields: fields["spec"].link)
    magnitude_link: Any = derived(lambda fields: fields["spec"].magnitude.link)

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return f"{label_of(self.spec)}, by category"

    @property
    def n_categories(self) -> int:
        """How many categories rewards come with."""
        return self.categories

    @property
    def n_arms(self) -> int:
        """Number of arms, where the policy knows them."""
        number: int = self.spec.n_arms
        return number


class Categories(NamedTuple):
    """The states of all parts, array by array with the category as first index."""

    parts: Any

    def with_arms(self, fresh: Categories, sources: Sequence[int]) -> Categories:
        """Return the state of other arms: for each the arm it was, or −1 if it is new."""
        for category in range(1, _number(self.parts) + 1):
            empty = part_of(fresh, category)
            _put(regrouped(part_of(self, category), empty, sources), empty)
        return fresh


def _number(parts: Any) -> int:
    """Return the first index of the arrays of a state."""
    return _number(parts[0]) if isinstance(parts, tuple) else len(parts)


def _put(state: Any, into: Any) -> None:
    """Copy the arrays of one state into those of another."""
    if isinstance(state, tuple):
        for part, other in zip(state, into, strict=True):
            _put(part, other)
    else:
        into[...] = state


def part_of(state: Categories, category: int) -> Any:
    """Return what was learned about one of the categories 1, 2, …: views, not copies."""
    return row_of(state.parts, category - 1)


def _init(spec: ByCategory, d: int, q: int) -> Categories:
    return Categories(stacked(policy.init(spec.spec, d, q), spec.categories))


@borrowing
def _scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    total, below = work[WORK_ROWS], work[:WORK_ROWS]
    for k in range(out.size):
        total[k] = 0.0
    for c in range(spec.categories):
        policy.scores(spec.spec, row_of(state.parts, c), arms, z, w, rng, below, out)
        for k in range(out.size):
            total[k] += out[k]
    for k in range(out.size):
        out[k] = total[k]


@borrowing
def _learn(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float, category: int) -> None:
    for c in range(spec.categories):
        paid = reward if category == c + 1 else 0.0
        policy.update(spec.spec, row_of(state.parts, c), arm, z, w, paid)


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    _learn(spec, state, arm, z, w, reward, 1)


@borrowing
def _moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write the mean reward and its variance, to first order, as those of the reward itself."""
    mean, variance, below = work[WORK_ROWS], work[WORK_ROWS + 1], work[:WORK_ROWS]
    n = out.shape[1]
    for k in range(n):
        mean[k] = 0.0
        variance[k] = 0.0
    for c in range(spec.categories):
        policy.moments(spec.spec, row_of(state.parts, c), arms, z, w, below, out)
        for k in range(n):
            p = min(value(spec.link, out[ETA, k]), 1.0)
            mu = min(max(value(spec.magnitude_link, out[ZETA, k]), -LARGEST), LARGEST)
            by_eta = derivative(spec.link, out[ETA, k]) * mu
            by_zeta = p * min(derivative(spec.magnitude_link, out[ZETA, k]), LARGEST)
            mean[k] += p * mu
            variance[k] += (
                by_eta * by_eta * out[ETA_VARIANCE, k]
                + 2.0 * by_eta * by_zeta * out[COVARIANCE, k]
                + by_zeta * by_zeta * out[ZETA_VARIANCE, k]
            )
    for k in range(n):
        out[ETA, k] = math.nan
        out[ETA_VARIANCE, k] = math.nan
        out[ZETA, k] = mean[k]
        out[ZETA_VARIANCE, k] = variance[k]
        out[COVARIANCE, k] = 0.0


register_policy(
    ByCategory, init=_init, scores=_scores, update=_update, learn=_learn, moments=_moments
)
