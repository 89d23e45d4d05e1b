"""Which policy suits the log, with its parameters filled in, and what telling zeros apart buys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib import contextual, mab, theory
from zib.core.spec import label_of
from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import ArmSummary
from zib.logs.advise.law import Fit, LawReport
from zib.mab.assumptions import Tail
from zib.stats.intervals import Estimate

ENOUGH = 30  # non-zero rewards of an arm whose own moments are trusted


class Parameter(NamedTuple):
    """One number of the recommended policy: its estimate in units of the rewards, and how."""

    name: str
    estimate: Estimate
    how: str


@dataclass(frozen=True)
class Choice:
    """A policy by name and arguments, for any horizon.

    Attributes
    ----------
    timed
        Whether it has to be told the horizon.
    why
        What speaks for it.
    plain
        Whether it takes the reward as one number, zeros and all.
    """

    name: str
    arguments: dict[str, Any]
    timed: bool
    why: str
    plain: bool = False

    contextual: ClassVar[bool] = False

    def _horizon(self, horizon: float) -> dict[str, float]:
        return {"horizon": max(float(horizon), 2.0)} if self.timed else {}

    def build(self, horizon: float) -> Any:
        """Return the spec made for this horizon."""
        return getattr(mab, self.name)(**self._horizon(horizon), **self.arguments)

    def code(self, horizon: str) -> str:
        """Return Python text that makes the spec."""
        return f"zib.mab.{self.name}({self._inside(horizon)})"

    def _inside(self, horizon: str) -> str:
        parts = [f"horizon={horizon}"] if self.timed else []
        for key, value in self.arguments.items():
            parts.append(f"{key}={'zib.' if isinstance(value, Tail) else ''}{value!r}")
        return ", ".join(parts)

    def because(self, why: str) -> Choice:
        """Return the same policy for another reason."""
        return replace(self, why=why)

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        label = label_of(self.build(1_000))
        return f"{label}, rho={self.arguments['rho']:g}" if "rho" in self.arguments else label


@dataclass(frozen=True)
class ContextualChoice(Choice):
    """A contextual policy with a model of its own for every arm."""

    n_arms: int = 1

    contextual: ClassVar[bool] = True

    def build(self, horizon: float) -> Any:
        """Return the spec made for this horizon."""
        inner = getattr(contextual, self.name)(**self._horizon(horizon), **self.arguments)
        return contextual.Disjoint(spec=inner, n_arms=self.n_arms)

    def code(self, horizon: str) -> str:
        """Return Python text that makes the spec."""
        inner = f"zib.contextual.{self.name}({self._inside(horizon)})"
        return f"zib.contextual.Disjoint(spec={inner}, n_arms={self.n_arms})"


class Choices(NamedTuple):
    """The policies that could be used here.

    Attributes
    ----------
    main
        The default: what is recommended unless the simulation shows something better.
    candidates
        Policies that take part in the simulation, the default first. None is told anything that
        the log does not say.
    others
        Policies for other demands, such as a proven bound.
    """

    main: Choice
    candidates: tuple[Choice, ...]
    others: tuple[Choice, ...]
    unit: float
    parameters: tuple[Parameter, ...]
    reasons: tuple[str, ...]


def rounded(x: float) -> float:
    """Return x with four significant digits."""
    return float(f"{x:.4g}")


def reward_unit(typical: float) -> float:
    """Return what rewards are divided by: 1, or a power of ten where they are huge or tiny."""
    if not math.isfinite(typical) or typical <= 0.0 or 1e-2 <= typical <= 1e4:
        return 1.0
    return float(10.0 ** round(math.log10(typical)))


def choose(
    found: Collected, arms: tuple[ArmSummary, ...], whole: ArmSummary, law: LawReport, sd: Estimate
) -> Choices:
    """Return the policies for this log."""
    if whole.nonzero == 0:
        return _collect_first(whole)
    typical = float(np.mean(np.abs(found.values)))
    unit = reward_unit(typical)
    reasons: list[str] = []
    reward_sd = _reward_sd(arms)
    plain = _plain(reward_sd / unit)
    if law.constant is not None:
        return _constant(law.constant, unit, plain)
    sigma = _sigma(found, arms, sd, reasons)
    order = law.tail.epsilon
    moment = _largest_moment(found, law, reasons)
    heavy = Choice(
        "ZIHeavyUCB",
        {"epsilon": order, "moment": rounded(moment.value / unit ** (1.0 + order))},
        False,
        "assumes only a finite moment of order 1 + ε, and pays for it with wide bounds",
    )
    parameters = [
        Parameter("sigma", sigma, "standard deviation of the non-zero rewards within arms"),
        Parameter(
            "reward sd", Estimate(reward_sd, math.nan, math.nan), "of all rewards within arms"
        ),
        Parameter("epsilon", Estimate(order, math.nan, math.nan), "from the tail index"),
        Parameter("moment", moment, f"mean of |X| to the power {1 + order:.4g}, largest arm"),
    ]  # fmt: skip
    if whole.nonzero == whole.rows:
        reasons.append(
            "No reward is zero, so there is nothing for zero inflation to exploit: plain policies "
            "do as well."
        )
        others: list[Choice] = []
        if law.tail.finite_variance == "no":
            others.append(heavy.because("with p = 1 the plain robust UCB with trimmed means"))
        return _all(plain, (), others, unit, parameters, reasons)
    sampling = Choice(
        "ZITS", {"sigma": rounded(sigma.value / unit), "rho": 2.0}, True,
        "samples how often and how much separately, with the variance of the mean itself, outside "
        "the theorem; sigma is the standard deviation of the non-zero rewards",
    )  # fmt: skip
    index = Choice(
        "ZIIMED", {}, False, "least divergence of both parts: nothing to set, and not random"
    )
    if law.tail.finite_variance == "no":
        reasons.insert(0, law.tail.words)
        others = [index, heavy]
        if law.best is not None and law.best.name in ("Student t", "Laplace"):
            others.insert(0, _stable(law, unit))
        return _all(plain, (sampling,), others, unit, parameters, reasons)
    others = [index]
    if law.best is not None and law.best.name == "exponential":
        others.append(
            Choice(
                "ZIExponentialTS", {}, False,
                "exact for exponential rewards; needs neither a horizon nor a spread",
            )
        )  # fmt: skip
    guarded, extra = _guarded(found, law, heavy, sigma.value, unit)
    return _all(plain, (sampling,), [*others, guarded], unit, [*parameters, *extra], reasons)


DEFAULT = Choice(
    "ZIAdaptive", {}, False,
    "the default: learns the family, the scatter and how alike arms are from the rewards, and is "
    "told nothing",
)  # fmt: skip


def _all(
    plain: tuple[Choice, ...],
    matching: tuple[Choice, ...],
    others: list[Choice],
    unit: float,
    parameters: list[Parameter],
    reasons: list[str],
) -> Choices:
    candidates = (DEFAULT, *matching, *plain)
    return Choices(DEFAULT, candidates, tuple(others), unit, tuple(parameters), tuple(reasons))


def _plain(sd: float) -> tuple[Choice, ...]:
    """Return the policies that take the reward as one number of this standard deviation."""
    arguments = {"sigma": max(rounded(sd), 1e-12)}
    return (
        Choice(
            "NormalTS", arguments, False,
            "plain Thompson sampling on the reward, told its standard deviation", plain=True,
        ),
        Choice("MOTS", arguments, True,
               "plain Thompson sampling with a cap, for a known horizon", plain=True),
        Choice("EpsilonGreedy", {"epsilon": 0.1}, False,
               "plays the best average and, in a tenth of the rounds, any arm", plain=True),
    )  # fmt: skip


def _reward_sd(arms: tuple[ArmSummary, ...]) -> float:
    """Return the standard deviation of the reward within arms, zeros and all."""
    rows = sum(arm.rows for arm in arms)
    return math.sqrt(sum(arm.rows * arm.variance for arm in arms if arm.rows) / max(rows, 1))


def with_context(choices: Choices, n_arms: int) -> tuple[Choice, ...]:
    """Return the candidates where the context matters; two of them do not look at it."""
    looking = (
        ContextualChoice(
            "JointUCB", {}, False, "bounds on both parts together, given the context", n_arms=n_arms
        ),
        ContextualChoice(
            "LaplaceTS", {"prior": "learned"}, False,
            "samples both parts given the context; learns how much the context matters",
            n_arms=n_arms,
        ),
        ContextualChoice(
            "Naive", {"sigma": None}, True,
            "a linear model of the reward, zeros and all, given the context", plain=True,
            n_arms=n_arms,
        ),
    )  # fmt: skip
    blind = tuple(c for c in choices.candidates if c.name in ("ZIAdaptive", "NormalTS"))
    return (*looking, *(c.because(f"without context: {c.why}") for c in blind))


def _collect_first(whole: ArmSummary) -> Choices:
    high = whole.p.high
    needed = math.ceil(10.0 / high)
    reasons = (
        f"None of {whole.rows} rewards is different from zero, so nothing distinguishes the arms.",
        f"p is at most {high:.2g}. Ten non-zero rewards take about {needed} rounds if p is that "
        "large, and more if it is smaller: play the arms evenly and look again then.",
    )
    even = Choice("EpsilonGreedy", {"epsilon": 1.0}, False, "plays all arms evenly")
    return Choices(even, (even,), (), 1.0, (), reasons)


def _constant(value: float, unit: float, plain: tuple[Choice, ...]) -> Choices:
    """Return policies for rewards that are 0 or one value, where only how often is unknown."""
    reason = f"Every non-zero reward is {value:.6g}: only how often an arm pays is unknown."
    exact: tuple[Choice, ...] = ()
    if value > 0.0:
        why = "exact for rewards that are 0 or one fixed value"
        scale = {"scale": value / unit}
        exact = (
            Choice("BetaTS", scale, False, why),
            Choice("KLUCB", scale, False, "the same as an index, not random"),
        )
    return _all(plain, exact, [], unit, [], [reason])


def _sigma(
    found: Collected, arms: tuple[ArmSummary, ...], sd: Estimate, reasons: list[str]
) -> Estimate:
    """Return the spread within arms, or a guess where no arm paid different amounts."""
    wide = [arm for arm in arms if arm.nonzero >= ENOUGH and arm.sd > 1.5 * sd.value]
    if wide:
        widest = max(wide, key=lambda arm: arm.sd)
        reasons.append(
            f"Arm {widest.label!r} spreads more than the others (standard deviation "
            f"{widest.sd:.4g} against {sd.value:.4g}); take that as sigma to be on the safe side."
        )
    if math.isfinite(sd.value) and sd.value > 0.0:
        return sd
    size = float(np.mean(np.abs(found.values)))
    reasons.append(
        "The spread cannot be seen yet; it is guessed to be as large as the mean magnitude."
    )
    return Estimate(size, 0.0, math.inf)


def _largest_moment(found: Collected, law: LawReport, reasons: list[str]) -> Estimate:
    """Return the moment of the arm where it is largest, as the policy must hold for all arms."""
    pooled = law.tail.moment
    order = 1.0 + law.tail.epsilon
    kept = np.bincount(found.arm_value_arm, minlength=found.n_arms)
    with np.errstate(over="ignore"):
        sums = np.bincount(
            found.arm_value_arm, np.abs(found.arm_values) ** order, minlength=found.n_arms
        )
    enough = kept >= ENOUGH
    if not enough.any():
        return pooled
    means = sums[enough] / kept[enough]
    factor = max(float(means.max()) / pooled.value, 1.0)
    if factor > 2.0:
        reasons.append(
            f"The moment of order {order:.3g} is {factor:.2g} times as large in one arm as in all "
            "arms together; the policy uses the largest."
        )
    return Estimate(pooled.value * factor, pooled.low * factor, pooled.high * factor)


def _guarded(
    found: Collected, law: LawReport, heavy: Choice, sigma: float, unit: float
) -> tuple[Choice, list[Parameter]]:
    """Return a policy whose bounds are proven for the law that fits best."""
    best = law.best
    proven = "upper bounds that hold under the stated tail; explores more than sampling does"
    if best is None or best.name in ("Gaussian", "Student t", "Laplace"):
        return Choice("ZIUCB", {"sigma": rounded(sigma / unit)}, True, proven), []
    if best.name in ("log-normal", "Pareto", "Lomax"):
        return heavy, []
    factor = 1.0
    if law.adjusted == "scaled":
        known = found.paid.count >= ENOUGH
        _, mean, _, _ = found.paid.pooled()
        factor = float(np.max(found.paid.mean[known] / mean)) if known.any() else 1.0
    if best.name == "Weibull":
        theta = rounded(min(0.999 * best.parameters["shape"], 2.0))
        size = factor * theory.subweibull_size(best.distribution(), theta)
        tail = mab.SubWeibull(theta=theta, size=rounded(size / unit))
        nan = math.nan
        extra = [
            Parameter("theta", Estimate(theta, nan, nan), "shape of the Weibull fit, at most 2"),
            Parameter("C", Estimate(size, nan, nan), "smallest size of the Weibull fit"),
        ]
        return Choice("ZIUCB", {"tail": tail}, True, proven), extra
    size = factor * _subexponential(best)
    tail = mab.SubExponential(size=rounded(size / unit))
    extra = [
        Parameter("size", Estimate(size, math.nan, math.nan), f"sub-exponential, {best.name} fit")
    ]
    return Choice("ZIUCB", {"tail": tail}, True, proven), extra


def _subexponential(best: Fit) -> float:
    """Return the smallest sub-exponential size of the fitted exponential or gamma law.

    For a gamma law of shape a and scale s it is s/v with −a(log(1 − v) + v) = ½.
    """
    from scipy.optimize import brentq

    if best.name == "exponential":
        return float(theory.exponential_subexponential_size(best.parameters["mean"]))
    shape, scale = best.parameters["shape"], best.parameters["scale"]
    v = brentq(lambda u: -shape * (math.log1p(-u) + u) - 0.5, 1e-9, 1.0 - 1e-12)
    return scale / float(v)


def _stable(law: LawReport, unit: float) -> Choice:
    low, high = np.quantile(law.sample, [0.25, 0.75])
    index = min(max(law.tail.index.value, 1.05), 2.0)
    # the quartiles of a symmetric stable law are 0.954σ (index 2) to 1σ (index 1) from the centre
    scale = float(high - low) / (2.0 * (1.046 - 0.046 * index))
    arguments = {"sigma": rounded(scale / unit), "stability": rounded(index)}
    return Choice("ZIStableTS", arguments, False, "for symmetric stable magnitudes")


# ------------------------------------------------------------------ what zeros are worth


@dataclass(frozen=True)
class Gain:
    """What telling zeros apart is worth: widths of bounds for an arm like the average one.

    Attributes
    ----------
    rows, level
        Number of pulls, and log(2/δ) with the δ = 4/T² of the policies.
    sd_reward
        Standard deviation of the reward, the least any valid bound can use.
    plain_size
        Smallest sub-Gaussian size of the reward as a whole.
    value_range
        Distance between the smallest and the largest reward, what UCB1 needs.
    plain_radius, range_radius, split_radius, joint_radius
        Width of the upper bound on r with the size of the reward, with its range, with bounds on
        the two parts, and to first order with the joint likelihood of both.
    """

    rows: float
    level: float
    sd_reward: float
    plain_size: float
    value_range: float
    plain_radius: float
    range_radius: float
    split_radius: float
    joint_radius: float

    @property
    def ratio(self) -> float:
        """Plain width over split width; its square is the ratio of the pulls needed."""
        return self.plain_radius / self.split_radius

    @property
    def range_ratio(self) -> float:
        """UCB1's width over split width."""
        return self.range_radius / self.split_radius


def gain(found: Collected, whole: ArmSummary, sd: float, horizon: int) -> Gain | None:
    """Return the widths for the average arm of the log; None where nothing ever paid."""
    if whole.nonzero == 0:
        return None
    delta = 4.0 / max(horizon, 3) ** 2
    level = math.log(2.0 / delta)
    played = int((found.rows > 0).sum())
    n = max(found.n_rows / max(played, 1), 1.0)
    p, mu = whole.nonzero / whole.rows, abs(whole.mu.value)
    sd = sd if math.isfinite(sd) else 0.0
    size = math.sqrt(float(theory.product_variance_proxy(mu, p, sd)))
    reach = max(found.highest, 0.0) - min(found.lowest, 0.0)
    prob = float(theory.kl_upper(p, n, level))
    mean = mu + float(theory.given_count_radius(max(n * p, 1e-9), delta, sd))
    variance = p * sd * sd + p * (1.0 - p) * mu * mu
    return Gain(
        n,
        level,
        math.sqrt(variance),
        size,
        reach,
        float(theory.given_count_radius(n, delta, size)),
        float(theory.given_count_radius(n, delta, reach)),
        mean * prob - p * mu,
        math.sqrt(2.0 * level * variance / n),
    )
