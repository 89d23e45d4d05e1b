"""How regret grows, without constants: the Thompson sampling theorem and Table 1 of the paper.

The curves of `zib.theory.regret` have constants and a level; these have a shape only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice, integer, real
from zib.theory._vectorise import number
from zib.theory.contextual import contextual_thompson_rate
from zib.theory.regret import HORIZON, worse_arms


def thompson_regret_rate(
    means: ArrayLike, probs: ArrayLike, horizon: ArrayLike, *, theta: float = 2.0
) -> Any:
    """Return the rate of the Thompson sampling theorem, which states no constant.

    Parameters
    ----------
    means, probs, horizon
        As for `light_tail_regret_bound`.
    theta
        Tail parameter of the non-zero rewards, > 0. At 2 and above (sub-Gaussian) the theorem's
        rate; below 2 the text adds (KT)^(1/θ) for the step that draws stable scales.

    Returns
    -------
    float or ndarray
        √(KT) + Σ_k (Δ_k/p_k + √(T/(p_k K))/p_1) over the worse arms, plus (KT)^(1/θ) for θ < 2: the
        regret up to a constant.

    Notes
    -----
    The proof of the theorem has gaps (`gaussian_beta_tail`), and the added term is taken from
    articles on *stable* rewards, whose variance is infinite. Sub-Weibull rewards have all moments;
    for θ <= 1 the term is at least KT, more than any policy can lose up to a constant, while
    Algorithm 1 has √(KT log T) for every θ.

    Examples
    --------
    >>> curve = thompson_regret_rate([2.5, 2.0], [0.2, 0.2], [1e4, 4e4])
    >>> round(float(curve[1] / curve[0]), 2)
    2.0
    >>> heavier = thompson_regret_rate([2.5, 2.0], [0.2, 0.2], [1e4, 4e4], theta=1.25)
    >>> round(float((heavier - curve)[1] / (heavier - curve)[0]), 4) == round(4**0.8, 4)
    True
    """
    _, p1, _, p, gap = worse_arms(means, probs)
    t = HORIZON("horizon", horizon)
    theta = real("theta", theta, 0.0, closed="neither")
    arms = np.asarray(probs, dtype=np.float64).size
    spread = np.sqrt(t)[..., None] / np.sqrt(p * arms) / p1
    rate = np.sqrt(arms * t) + float((gap / p).sum()) + spread.sum(axis=-1)
    return number(rate + (arms * t) ** (1.0 / theta) if theta < 2.0 else rate)


_ROWS = ("ucb", "heavy_ucb", "ts", "glm_ucb", "glm_ts")


def minimax_ratio(
    algorithm: str,
    horizon: ArrayLike,
    *,
    n_arms: int | None = None,
    epsilon: float | None = None,
    dims: tuple[int, int] | None = None,
    version: str = "derived",
) -> Any:
    """Return how far a regret rate is from the minimax lower bound: the last column of Table 1.

    Parameters
    ----------
    algorithm
        A row of the table: ``"ucb"`` (Algorithm 1, sub-Gaussian and sub-Weibull), ``"heavy_ucb"``
        (Algorithm B.1), ``"ts"`` (Algorithm B.2), ``"glm_ucb"`` (Algorithm B.3), ``"glm_ts"``
        (Algorithm B.4).
    horizon
        T >= 2; an array gives a curve.
    n_arms
        K >= 1, for the first three.
    epsilon
        In (0, 1], for ``"heavy_ucb"``.
    dims
        (d, q), the numbers of features of the magnitude and of the occurrence, for the last two.
    version
        ``"derived"``: the problem-independent rate that the text states for the algorithm, divided
        by √(KT) or (d ∨ q)√T. ``"printed"``: the entry of the table.

    Returns
    -------
    float or ndarray
        Derived, in the order above: (√(KT log T) + K)/√(KT);
        (K√T + T^(1/(1+ε)) (K log T)^(ε/(1+ε)))/√(KT); (√(KT) + K)/√(KT);
        Σ √(m L_m (log T + m L_m))/(d ∨ q) over m = d, q with L_m = log(1 + T/m), at δ = 1/T;
        d ∨ q. Printed: √log T; √(K/T) + (K/T)^((ε-1)/(2(1+ε))) log^(ε/(1+ε)) K; 1;
        log(d ∨ q) log(T/(d ∧ q)); (d ∨ q) log(d ∨ q) log(T/(d ∧ q)).

    Notes
    -----
    The printed entry for heavy tails cannot be right. For ε = 1 and K = 2 it falls below 1, and no
    policy beats a minimax lower bound. It does not follow from equation (A.1) either, which gives
    √K for its first term and log T for its log K. The printed entries for generalized linear models
    vanish at d = q = 1, where log(d ∨ q) = 0; Theorem 4.3 has no such factor.

    √(KT) is the minimax rate for light tails. For a moment of order 1 + ε alone it is
    K^(ε/(1+ε)) T^(1/(1+ε)), to which the second term of (A.1) has the ratio log^(ε/(1+ε)) T.

    Examples
    --------
    >>> round(minimax_ratio("ucb", 75_000, n_arms=10), 2)
    3.36
    >>> round(minimax_ratio("heavy_ucb", 10**6, n_arms=2, epsilon=1.0, version="printed"), 2)
    0.83
    >>> round(minimax_ratio("heavy_ucb", 10**6, n_arms=2, epsilon=1.0), 2)
    5.13
    """
    row = _ROWS[choice("algorithm", algorithm, _ROWS)]
    printed = choice("version", version, ("derived", "printed")) == 1
    t = HORIZON("horizon", horizon)
    log_t = np.log(t)
    if row.startswith("glm"):
        d, q = _two_dims(row, dims)
        wide = max(d, q)
        if printed:
            ratio = np.log(wide) * np.log(t / min(d, q))
            return number(ratio * wide if row == "glm_ts" else ratio)
        if row == "glm_ts":
            return number(np.asarray(contextual_thompson_rate(t, d, q)) / (wide * np.sqrt(t)))
        parts = [m * np.log1p(t / m) * (log_t + m * np.log1p(t / m)) for m in (d, q)]
        return number((np.sqrt(parts[0]) + np.sqrt(parts[1])) / wide)
    if n_arms is None:
        raise InvalidParameterError(f"`n_arms` must be given for {row!r}; got None")
    k = float(integer("n_arms", n_arms, 1))
    minimax = np.sqrt(k * t)
    if row == "heavy_ucb":
        if epsilon is None:
            raise InvalidParameterError("`epsilon` must be given for 'heavy_ucb'; got None")
        epsilon = real("epsilon", epsilon, 0.0, 1.0, "right")
        power = epsilon / (1.0 + epsilon)
        if printed:
            tail = (k / t) ** (0.5 * (epsilon - 1.0) / (1.0 + epsilon))
            return number(np.sqrt(k / t) + tail * np.log(k) ** power)
        return number((k * np.sqrt(t) + t ** (1.0 - power) * (k * log_t) ** power) / minimax)
    factor = np.sqrt(log_t) if row == "ucb" else np.ones_like(t)
    return number(factor if printed else factor + k / minimax)


def _two_dims(row: str, dims: tuple[int, int] | None) -> tuple[int, int]:
    if not isinstance(dims, tuple) or len(dims) != 2:
        raise InvalidParameterError(f"`dims` must be a pair (d, q) for {row!r}; got {dims!r}")
    return integer("dims", dims[0], 1), integer("dims", dims[1], 1)
