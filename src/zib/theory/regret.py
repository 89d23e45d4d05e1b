"""What regret is possible, and what the theorems promise.

`lower_bound` is the yardstick: no consistent policy has a regret below it times log T,
asymptotically. `rare_arm_regret` and `rare_arm_ratio` say at every horizon what nobody can have in
two worlds at once. The other functions evaluate the upper bounds of the theorems with the constants
their proofs give, so that curves can be drawn; they are far from what the policies do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice, integer, real, shown, vector
from zib.theory._vectorise import Array, number, within
from zib.theory.bernoulli import bernoulli_kl
from zib.theory.divergence import divergence_to
from zib.theory.joint_curve import FAMILIES
from zib.theory.means import trimming_factor_scalar
from zib.theory.subweibull import subweibull_d, subweibull_e

HORIZON = within(2.0, np.inf, "left")
PULLS = within(0.0, np.inf, "left")
# Gaps below this share of the best reward are rounding errors of mu*p, not gaps.
TIE = 1e-12


def _arms(means: ArrayLike, probs: ArrayLike) -> tuple[Array, Array]:
    mu = vector("means", means)
    p = vector("probs", probs, 0.0, 1.0)
    if mu.size != p.size:
        raise InvalidParameterError(
            f"`means` and `probs` must have equal lengths; got {mu.size} and {p.size}"
        )
    return mu, p


def lower_bound(
    means: ArrayLike,
    probs: ArrayLike,
    sigma: float | None = None,
    *,
    family: str = "gaussian",
) -> float:
    """Return the constant c in liminf R(T)/log T >= c for every consistent policy.

    Parameters
    ----------
    means, probs
        mu_k and p_k of each arm.
    sigma
        Common standard deviation of the non-zero part, > 0; family ``"gaussian"`` only.
    family
        ``"gaussian"`` or ``"exponential"`` non-zero part.

    Returns
    -------
    float
        Σ_k Δ_k / d_inf(k) over the arms with Δ_k = r_1 - mu_k p_k > 0; 0 if all are optimal.
        Gaps below 1e-12 r_1 count as ties, since mu_k p_k is rounded.

    Notes
    -----
    Lai–Robbins and Burnetas–Katehakis, for policies that know the family and sigma. See
    `divergence_to` for d_inf. To first order each arm contributes 2 Var(R_k)/Δ_k. The bound is
    asymptotic: at a finite horizon a good policy may lie below c log T. An arm with p_k = 0 makes
    it infinite.

    The lemma in the text has the divergence in the numerator; see `printed_lower_bound`.

    Examples
    --------
    >>> round(lower_bound(means=[2.5, 2.0], probs=[0.2, 0.2], sigma=1.0), 3)
    19.47
    """
    mu, p = _arms(means, probs)
    choice("family", family, FAMILIES)
    reward = mu * p
    best = float(reward.max())
    gap = best - reward
    worse = gap > TIE * abs(best)
    if not worse.any():
        return 0.0
    if family == "exponential":
        if np.any(mu <= 0.0):
            raise InvalidParameterError("`means` must be positive for family 'exponential'")
        if best <= 0.0:
            return 0.0
    divergence = np.asarray(
        divergence_to(mu[worse], p[worse], best, sigma, family=family), dtype=np.float64
    )
    with np.errstate(all="ignore"):
        return float((gap[worse] / divergence).sum())


@np.errstate(all="ignore")
def printed_lower_bound(
    means: ArrayLike, probs: ArrayLike, sigma: float, *, reading: str = "literal"
) -> float:
    """Return the lower bound as the text prints it, for comparison only.

    Parameters
    ----------
    means, probs
        mu_k and p_k of each arm.
    sigma
        Standard deviation of the non-zero part, > 0.
    reading
        ``"literal"``: the printed formula. ``"repaired"``: the same with the two inequality signs
        turned round (r_1/p_k - mu_k instead of mu_k - r_1/p_k, and the larger instead of the
        smaller probability), which is what the proof computes.

    Returns
    -------
    float
        Σ_k [(0 ∨ (mu_k - r_1/p_k))²/(2σ²) + kl(p_k, p_k ∧ r_1/mu_k)].

    Notes
    -----
    Read literally this is **zero for every instance** with positive means: a worse arm has
    mu_k < r_1/p_k and p_k < r_1/mu_k. Even repaired it is not a lower bound on the regret: the
    divergence stands in the numerator instead of the denominator, the Gaussian term lacks its
    factor p_k, and each term moves one parameter only although an alternative may move both. Use
    `lower_bound`.

    Arms with mu_k <= 0 give ``nan`` (the formula takes the logarithm of a negative number), an
    unreachable r_1 > mu_k gives ``inf`` in the repaired reading.

    Examples
    --------
    >>> printed_lower_bound(means=[2.5, 2.0], probs=[0.2, 0.2], sigma=1.0)
    0.0
    """
    mu, p = _arms(means, probs)
    sigma = real("sigma", sigma, 0.0, closed="neither")
    spread = np.float64(sigma)  # of NumPy: dividing by its square is inf, not an error
    literal = choice("reading", reading, ("literal", "repaired")) == 0
    reward = mu * p
    best = float(reward.max())
    total = 0.0
    for m, q, r in zip(mu, p, reward, strict=True):
        if best - r <= TIE * abs(best):
            continue
        if m <= 0.0 or q <= 0.0:
            return math.nan
        shift = m - best / q if literal else best / q - m
        other = min(q, best / m) if literal else max(q, best / m)
        total += max(shift, 0.0) ** 2 / (2.0 * spread**2)
        total += bernoulli_kl(float(q), float(min(other, 1.0)))
    return float(total)


def rare_arm_regret(
    pulls: ArrayLike, prob: float, horizon: float, loss: float, gain: float
) -> tuple[Any, Any]:
    """Return the least regrets in two worlds that differ only in whether a rare arm ever pays.

    Until that arm pays for the first time nobody can tell which of the two worlds it is, so every
    policy tries it equally often in both.

    Parameters
    ----------
    pulls
        How often the rare arm is tried at most while it does not pay, from 0 to `horizon`; an array
        gives a curve.
    prob
        How often the rare arm pays in the world where it does, in (0, 1).
    horizon
        T >= 2.
    loss
        What a pull of the rare arm costs in the world where it never pays, > 0.
    gain
        What a pull of the rare arm gains on average in the world where it pays, > 0.

    Returns
    -------
    tuple
        (regret where the rare arm never pays, regret where it does): with n pulls loss·n and
        gain·(T - n)·(1 - prob)^n.

    Notes
    -----
    That is the regret of a policy that knows everything else: it tries the rare arm first, up to n
    times, and knows from its first payment which world it is. Trying later cannot help, since the
    sooner the arm pays the better. Nor does chance help: the second regret is a convex function of
    the first. So no policy is below this curve.

    Examples
    --------
    >>> never, now_and_then = rare_arm_regret([0, 20, 1_000], 0.005, 10_000, loss=0.5, gain=0.5)
    >>> never.tolist(), now_and_then.round().tolist()
    ([0.0, 10.0, 500.0], [5000.0, 4514.0, 30.0])
    """
    n, prob, horizon, loss, gain = PULLS("pulls", pulls), *_rare(prob, horizon, loss, gain)
    if np.any(n > horizon):
        raise InvalidParameterError(
            f"`pulls` must be at most `horizon`, {shown(horizon)}; got {shown(float(n.max()))}"
        )
    never, now_and_then = _rare_arm_regret(n, prob, horizon, loss, gain)
    return number(never), number(now_and_then)


def _rare(prob: float, horizon: float, loss: float, gain: float) -> tuple[float, ...]:
    return (
        real("prob", prob, 0.0, 1.0, "neither"),
        real("horizon", horizon, 2.0),
        real("loss", loss, 0.0, closed="neither"),
        real("gain", gain, 0.0, closed="neither"),
    )


def _rare_arm_regret(n: Any, prob: float, horizon: float, loss: float, gain: float) -> Any:
    return loss * n, gain * (horizon - n) * np.exp(n * np.log1p(-prob))


def rare_arm_ratio(
    prob: float, horizon: float, loss: float, gain: float, *, never: float, now_and_then: float
) -> float:
    """Return how close to two given regrets, one for each world, a single policy can be at best.

    Parameters
    ----------
    prob, horizon, loss, gain
        As for `rare_arm_regret`.
    never, now_and_then
        Regrets to compare with, > 0, where the rare arm never pays and where it does: those of
        the best of several policies in each world, say.

    Returns
    -------
    float
        The smallest r such that some policy has at most r times the given regret in both worlds.
        At most 1: a single policy may have both.

    Examples
    --------
    Of six policies the best has regret 3 where an arm never pays, and another one the best has
    11,200 where it pays once in a thousand rounds, and a thousand. Nobody can be within 1.3 times
    of both:

    >>> round(rare_arm_ratio(0.001, 30_000, 0.5, 0.5, never=3.0, now_and_then=11_200.0), 2)
    1.33
    """
    from scipy.optimize import brentq

    prob, horizon, loss, gain = _rare(prob, horizon, loss, gain)
    never = real("never", never, 0.0, closed="neither")
    now_and_then = real("now_and_then", now_and_then, 0.0, closed="neither")

    def difference(n: float) -> float:
        first, second = _rare_arm_regret(n, prob, horizon, loss, gain)
        return float(first / never - second / now_and_then)

    # one regret grows with n and the other one falls to 0: the ratios cross once
    n = brentq(difference, 0.0, horizon, xtol=1e-12, rtol=1e-12, maxiter=500)
    return float(_rare_arm_regret(n, prob, horizon, loss, gain)[0] / never)


def worse_arms(means: ArrayLike, probs: ArrayLike) -> tuple[float, float, Array, Array, Array]:
    """Return r_1 and p_1 of the best arm and (r, p, gap) of the worse ones."""
    mu, p = _arms(means, probs)
    reward = mu * p
    if np.any(p <= 0.0):
        raise InvalidParameterError("`probs` must be positive for a regret bound")
    if np.any(reward <= 0.0):
        raise InvalidParameterError("`means` must be positive for a regret bound")
    best = float(reward.max())
    gap = best - reward
    worse = gap > TIE * best
    # any optimal arm may play the part of arm 1; the one seen most often gives the best bound
    return best, float(p[~worse].max()), reward[worse], p[worse], gap[worse]


def _tail(theta: float, size: float) -> tuple[float, float, float]:
    """Return e·D·C, E and the power of log T of a sub-Weibull tail.

    The power is a number of NumPy, whose powers end in inf instead of in an error.
    """
    theta = real("theta", theta, 0.0, closed="neither")
    size = real("size", size, 0.0, closed="neither")
    return (
        math.e * subweibull_d(theta, size) * size,
        subweibull_e(theta),
        np.float64(max(1.0 / theta, 1.0)),
    )


def _moment(epsilon: float, moment: float) -> tuple[float, float]:
    return real("epsilon", epsilon, 0.0, 1.0, "right"), real(
        "moment", moment, 0.0, closed="neither"
    )


def _many(n_arms: int, prob_min: float, horizon: ArrayLike) -> tuple[int, float, Array]:
    arms = integer("n_arms", n_arms, 1)
    least = np.float64(real("prob_min", prob_min, 0.0, 1.0, "right"))  # whose squares divide
    return arms, least, HORIZON("horizon", horizon)


@np.errstate(all="ignore")
def light_tail_regret_bound(
    means: ArrayLike,
    probs: ArrayLike,
    horizon: ArrayLike,
    theta: float,
    size: float,
    *,
    constants: str = "simplified",
) -> Any:
    """Return the regret bound of the light-tailed UCB theorem, with explicit constants.

    Parameters
    ----------
    means, probs
        mu_k > 0 and p_k > 0 of each arm.
    horizon
        T >= 2; an array gives a curve.
    theta, size
        Tail parameter and size of X - mu.
    constants
        ``"simplified"``: the last line of the proof, which needs mu_k p_k <= 1 (rescale otherwise).
        ``"sharp"``: the line before, which keeps r_k and p_k and needs no such scaling.

    Returns
    -------
    float or ndarray
        With γ = max(1/θ, 1) and D, E from `subweibull_constants`, the simplified bound is
        (8/p_1²) log T ΣΔ_k + 4(9 + 512 e²D²C²) Σ log T/(p_k² Δ_k)
        + 2^(6+γ) e D C E Σ log^γ T/p_k + (6 + 16/T + 2/T²) ΣΔ_k.

    Notes
    -----
    The text prints 512 e D²C²: the e² of the condition on the number of pulls becomes e between two
    lines of the proof. The square is restored here. The bound is for delta = 4/T² and the radius of
    `zi_subweibull_radius`. Two steps of the proof are weaker than they look: the event that the
    best arm is never underestimated is bounded at a single number of pulls instead of all, and the
    divergence of the Bernoulli parts has its arguments exchanged (harmless, as Pinsker's inequality
    is used afterwards). Take the curve as the theorem's claim, not as a certificate.

    Examples
    --------
    >>> curve = light_tail_regret_bound([2.5, 2.0], [0.2, 0.2], [1e3, 1e6], theta=2.0, size=1.0)
    >>> bool(curve[1] / curve[0] < 2.01)
    True
    """
    best, p1, r, p, gap = worse_arms(means, probs)
    t = HORIZON("horizon", horizon)
    dc, e_theta, power = _tail(theta, size)
    log_t = np.log(t)
    rest = (6.0 + 16.0 / t + 2.0 / t**2) * gap.sum()
    if choice("constants", constants, ("simplified", "sharp")) == 0:
        if best > 1.0:
            raise InvalidParameterError(
                "`means` * `probs` must not exceed 1 for the simplified constants; "
                f"got {shown(best)} (rescale the rewards, or use constants='sharp')"
            )
        first = 8.0 / p1**2 * log_t * gap.sum()
        root = 4.0 * (9.0 + 512.0 * dc**2) * float((1.0 / (p**2 * gap)).sum()) * log_t
        tail = 2.0 ** (6.0 + power) * dc * e_theta * float((1.0 / p).sum()) * log_t**power
        return number(first + root + tail + rest)
    lift = 1.0 + np.sqrt(p)
    first = 8.0 / p1**2 * 0.5 ** min(theta, 1.0) * log_t * gap.sum()
    square = (r + best) ** 2 + 128.0 * dc**2 * p**2 * lift**2
    root = 4.0 * float((square / (p**2 * gap)).sum()) * log_t
    tail = 2.0 ** (5.0 + power) * dc * e_theta * float((lift / np.sqrt(p)).sum()) * log_t**power
    return number(first + root + tail + rest)


@np.errstate(all="ignore")
def light_tail_minimax_bound(
    n_arms: int, prob_min: float, horizon: ArrayLike, theta: float, size: float
) -> Any:
    """Return the problem-independent bound that follows from the light-tailed UCB theorem.

    Parameters
    ----------
    n_arms
        K >= 1.
    prob_min
        A lower bound for every p_k, in (0, 1].
    horizon
        T >= 2.
    theta, size
        Tail parameter and size of X - mu.

    Returns
    -------
    float or ndarray
        2 √(A (K-1) T log T)/p + (K-1) [8 log T/p² + 2^(6+γ) e D C E log^γ T/p + 6 + 16/T + 2/T²]
        with A = 4(9 + 512 e²D²C²) and p = prob_min.

    Notes
    -----
    Gaps below Δ cost at most TΔ, the others 1/Δ; Δ is chosen to balance the two, and Δ_k <= 1. The
    rate is √(K T log T); the text absorbs the powers of 1/p in its constant.

    Examples
    --------
    >>> ratio = light_tail_minimax_bound(10, 0.2, [1e8, 4e8], theta=2.0, size=1.0)
    >>> bool(2.0 < ratio[1] / ratio[0] < 2.1)
    True
    """
    arms, p, t = _many(n_arms, prob_min, horizon)
    dc, e_theta, power = _tail(theta, size)
    others, log_t = arms - 1, np.log(t)
    root = 2.0 * np.sqrt(4.0 * (9.0 + 512.0 * dc**2) * others * t * log_t) / p
    tail = 2.0 ** (6.0 + power) * dc * e_theta * log_t**power / p
    return number(root + others * (8.0 * log_t / p**2 + tail + 6.0 + 16.0 / t + 2.0 / t**2))


def heavy_tail_regret_bound(
    means: ArrayLike, probs: ArrayLike, horizon: ArrayLike, epsilon: float, moment: float
) -> Any:
    """Return the regret bound of the heavy-tailed UCB theorem as stated.

    Parameters
    ----------
    means, probs, horizon
        As for `light_tail_regret_bound`.
    epsilon
        In (0, 1].
    moment
        M > 0 with E |X|^(1+epsilon) <= M for every arm (the raw moment; see `trimmed_mean`).

    Returns
    -------
    float or ndarray
        2 Σ (3Δ_k + 4Δ_k/p_1² + 9/(p_k² Δ_k))
        + Σ (2 p_k g(p_k, ε))^((1+ε)/ε) M^(1/ε) Δ_k^(-1/ε) log T.

    Notes
    -----
    As stated, not as proved. The proof needs (Δ_k/2) where the last term has Δ_k, log T² where it
    has log T, and g at p_k + Δ_k/(2 mu_k): together a factor of at least 2^(1+(1+ε)/ε) in the last
    term. It also bounds P(p_hat > p + ε) by a power of exp(-t) although the arm was pulled fewer
    than t times, and the probability that the trimmed mean is too large by 2/t³ where its own lines
    give only t^(-2c) with a c < 1. Take the curve as the theorem's claim, not as a certificate.

    Examples
    --------
    >>> curve = heavy_tail_regret_bound([2.5, 2.0], [0.2, 0.2], [1e3, 1e6], 1.0, 8.0)
    >>> bool(curve[1] / curve[0] < 2.0)
    True
    """
    _, p1, _, p, gap = worse_arms(means, probs)
    t = HORIZON("horizon", horizon)
    epsilon, moment = _moment(epsilon, moment)
    g = np.array([trimming_factor_scalar(float(x), epsilon) for x in p])
    constant = 2.0 * float((3.0 * gap + 4.0 * gap / p1**2 + 9.0 / (p**2 * gap)).sum())
    with np.errstate(all="ignore"):
        rate = (2.0 * p * g) ** ((1.0 + epsilon) / epsilon) * (moment / gap) ** (1.0 / epsilon)
        return number(constant + float(rate.sum()) * np.log(t))


@np.errstate(all="ignore")
def heavy_tail_minimax_bound(
    n_arms: int, prob_min: float, horizon: ArrayLike, epsilon: float, moment: float
) -> Any:
    """Return the problem-independent bound of the heavy-tailed UCB algorithm as stated.

    Parameters
    ----------
    n_arms, prob_min, horizon
        As for `light_tail_minimax_bound`.
    epsilon, moment
        As for `heavy_tail_regret_bound`.

    Returns
    -------
    float or ndarray
        2K(4/p² + 3) + 8 √(T (K-1))/p
        + 2((1+ε) 2^(ε/(1+ε)) + 10/3) (M T)^(1/(1+ε)) (K log T)^(ε/(1+ε)) with p = prob_min.

    Examples
    --------
    >>> ratio = heavy_tail_minimax_bound(10, 0.2, [1e10, 4e10], epsilon=1.0, moment=5.0)
    >>> bool(2.0 < ratio[1] / ratio[0] < 2.1)
    True
    """
    arms, p, t = _many(n_arms, prob_min, horizon)
    epsilon, moment = _moment(epsilon, moment)
    power = epsilon / (1.0 + epsilon)
    heavy = 2.0 * ((1.0 + epsilon) * 2.0**power + 10.0 / 3.0)
    heavy_curve = heavy * (moment * t) ** (1.0 - power) * (arms * np.log(t)) ** power
    constant = 2.0 * arms * (4.0 / p**2 + 3.0)
    return number(constant + 8.0 * np.sqrt(t * (arms - 1)) / p + heavy_curve)
