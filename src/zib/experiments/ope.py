"""Off-policy evaluation where rewards are rare: do the intervals cover, and does a model help?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib import ope
from zib.core.rng import Role, stream
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment, Scaled
from zib.experiments.judge import decide, decide_mean, decide_share
from zib.experiments.record import Setting, Table, Verdict
from zib.logs import LoggedData
from zib.stats import intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROMISE, LEVEL = 0.93, 0.95
LOGGING = np.array([0.5, 0.3, 0.2])
Array = NDArray[np.float64]


class Regime(NamedTuple):
    """How often an arm pays and how different the sizes are."""

    name: str
    prob: float
    spread: float


REGIMES = (
    Regime("1 % pay", 0.01, 0.7),
    Regime("0.3 % pay", 0.003, 1.0),
    Regime("20 % pay", 0.20, 0.4),
)
PROMISED, COMMON = REGIMES[0].name, REGIMES[2].name
RARE = tuple(regime.name for regime in REGIMES[:2])


def _target(context: Array) -> Array:
    """Return the probabilities of the policy in question: the third arm, more so for large x₁."""
    third = 1.0 / (1.0 + np.exp(-1.0 - context[:, 0]))
    return np.column_stack([0.5 * (1.0 - third), 0.5 * (1.0 - third), third])


def _means(regime: Regime, context: Array) -> tuple[Array, Array]:
    """Return how often and how much each arm pays, (n, 3) each."""
    arm = np.arange(3)
    often = regime.prob * np.exp(0.4 * context[:, :1] + 0.2 * (arm - 1) - 0.08)
    much = 10.0 * np.exp(0.3 * context[:, 1:2] + 0.2 * (1 - arm) - 0.045)
    return np.minimum(often, 1.0), np.broadcast_to(much, often.shape)


def _truth(regime: Regime) -> float:
    """Return the value of the target policy, by quadrature over the two features that matter."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    one, two = (axis.ravel() for axis in np.meshgrid(nodes, nodes))
    context = np.column_stack([one, two, np.zeros_like(one)])
    often, much = _means(regime, context)
    mass = np.outer(weights, weights).ravel()
    return float(mass @ (_target(context) * often * much).sum(axis=1) / mass.sum())


def _log(regime: Regime, rng: np.random.Generator, rows: int) -> LoggedData:
    context = rng.normal(size=(rows, 3))
    arm = rng.choice(3, rows, p=LOGGING)
    often, much = (part[np.arange(rows), arm] for part in _means(regime, context))
    size = much * rng.lognormal(-(regime.spread**2) / 2, regime.spread, rows)
    reward = np.where(rng.random(rows) < often, size, 0.0)
    return LoggedData.from_arrays(arm, reward, propensity=LOGGING[arm], context=context)


class Method(NamedTuple):
    """A way to estimate: a model of the reward, an estimator, a kind of interval."""

    model: str
    estimator: str
    interval: str


METHODS = {
    "IPS": Method("one_part", "ips", "corrected"),
    "SNIPS": Method("one_part", "snips", "corrected"),
    "DR, one-part model": Method("one_part", "dr", "corrected"),
    "DR, hurdle model": Method("hurdle", "dr", "corrected"),
    "IPS, normal interval": Method("one_part", "ips", "asymptotic"),
}
HURDLE, ONE_PART = "DR, hurdle model", "DR, one-part model"


class Summary(NamedTuple):
    """How one method did in one regime, over all logs."""

    regime: str
    method: str
    logs: int
    truth: float
    bias: float
    bias_error: float
    variance_ratio: float
    ratio_error: float
    coverage: float
    coverage_error: float
    width: float
    squares: Array  # squared deviation of each log's value from the mean, over the squared truth

    @property
    def quantile(self) -> float:
        """How many standard errors a 95 % interval over logs is wide on either side."""
        return float(intervals.t_quantile(self.logs - 1))


def _estimates(log: LoggedData, seed: int) -> Array:
    """Return value and interval of the target policy by every method, (methods, 3)."""
    out = []
    for model, estimator, interval in METHODS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few rewards, as intended
            found = ope.evaluate(
                log,
                {"target": _target},
                estimators=(estimator,),
                model=model,
                interval=interval,
                level=LEVEL,
                seed=seed,
            )
        value = found.values[0]
        out.append((value.value, value.low, value.high))
    return np.array(out)


def _summary(regime: str, name: str, truth: float, found: Array, ips: Array) -> Summary:
    value, low, high = found.T
    n = len(value)
    share = float(np.mean((low <= truth) & (truth <= high)))
    return Summary(
        regime=regime,
        method=name,
        logs=n,
        truth=truth,
        bias=float(value.mean()) / truth - 1.0,
        bias_error=intervals.standard_error(value) / truth,
        variance_ratio=float(value.var() / ips.var()),
        ratio_error=_ratio_error(value, ips),
        coverage=share,
        # with two intervals more on either side, so that 100 % has an error too
        coverage_error=math.sqrt((share * n + 2) * ((1 - share) * n + 2) / (n + 4) ** 3),
        width=float((high - low).mean()) / truth,
        squares=((value - value.mean()) / truth) ** 2,
    )


def _ratio_error(one: Array, other: Array) -> float:
    """Return the standard error of a ratio of variances, by the jackknife over logs (paired)."""
    n = one.size

    def without(values: Array) -> Array:
        squares = (values - values.mean()) ** 2
        return np.asarray((squares.sum() - squares * n / (n - 1)) / (n - 2))

    ratios = without(one) / without(other)
    return math.sqrt((n - 1) / n * float(((ratios - ratios.mean()) ** 2).sum()))


class OffPolicy(Experiment["list[Summary]"]):
    """One policy evaluated on many simulated logs of another."""

    order = 17
    title = "Beyond the paper: evaluating policies on logs with rare rewards"
    about = (
        "A log of 20 000 rows made by one policy, and the value of another policy estimated from "
        "it, many times over. Variance relative to plain weighting (IPS), and how often the 95 % "
        "intervals contain the truth."
    )
    weight = 1.0
    rows = 20_000
    logs = Scaled(quick=24, paper=1_000)
    remarks = (
        "A model can only explain what the context and the arm explain. When one reward in a "
        "hundred is not zero, nearly all of the variance is whether this very customer bought, and "
        "no model of the mean removes it: doubly robust estimation then protects against wrong "
        "propensities, but buys little precision.",
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting(
                "logs",
                f"{self.logs} per regime, {self.rows} rows each, three arms, three features",
                "ours",
            ),
            Setting(
                "logging policy", "arms at random with probabilities .5, .3, .2, known", "ours"
            ),
            Setting(
                "policy evaluated", "the third arm with probability 1/(1 + exp(−1 − x₁))", "ours"
            ),
            Setting(
                "rewards",
                "occurrence exp(.4 x₁ + .2(k − 1)) around 1 %, .3 % or 20 %; log-normal sizes that "
                "depend on x₂ and the arm, spread of the logarithm .7, 1 or .4",
                "ours",
            ),
            Setting("truth", "Gauss–Hermite quadrature over the features", "ours"),
            Setting("models", "fitted on the other half of the rows (two folds)", "ours"),
            Setting("intervals", "corrected for skewness unless said otherwise", "ours"),
        )

    def measure(self) -> list[Summary]:
        """Simulate logs, evaluate the policy on each, and count."""
        return [row for i, regime in enumerate(REGIMES) for row in self._in_regime(i, regime)]

    def _in_regime(self, i: int, regime: Regime) -> list[Summary]:
        found = np.empty((self.logs, len(METHODS), 3))
        for j in range(self.logs):
            words = f"{regime.name}: log {j + 1} of {self.logs}"
            self.context.tell(words, (i + j / self.logs) / len(REGIMES))
            rng = stream(self.context.seed, Role.ENVIRONMENT, i, j)
            found[j] = _estimates(_log(regime, rng, self.rows), j)
        truth = _truth(regime)
        return [
            _summary(regime.name, name, truth, found[:, k], found[:, 0, 0])
            for k, name in enumerate(METHODS)
        ]

    def tables(self, found: list[Summary]) -> Iterable[Table]:
        """Return how every method did."""
        content = tuple(
            (
                row.regime,
                row.method,
                f"{100 * row.bias:+.2f} ± {100 * row.quantile * row.bias_error:.2f} %",
                f"{row.variance_ratio:.3f}",
                f"{100 * row.coverage:.1f} %",
                f"{row.width:.3f}",
            )
            for row in found
        )
        head = ("regime", "method", "bias", "variance / IPS", "covered", "width / truth")
        yield Table(
            "Estimators in three regimes", head, content, "± is the 95 % Monte Carlo error."
        )

    def claims(self, found: list[Summary]) -> Iterable[Verdict]:
        """Judge what we promise, and what models are said to buy."""
        return verdicts(found, self.rows)

    def figures(self, found: list[Summary]) -> Iterable[Drawn]:
        """Draw variances and coverages."""
        import pandas as pd
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.0, 4.4))
        figure.set_layout_engine("constrained", rect=(0.0, 0.06, 1.0, 0.94))
        left, right = figure.subplots(1, 2, sharey=True)
        _points(left, found, "variance_ratio", "ratio_error")
        left.axvline(1.0, color="#555555", linewidth=1.0)
        left.set_xlabel("variance relative to IPS")
        _points(right, found, "coverage", "coverage_error")
        right.axvline(LEVEL, color="#555555", linewidth=1.0, linestyle="--")
        right.axvline(PROMISE, color="#555555", linewidth=1.0, linestyle=":")
        right.set_xlim(right=1.005)
        right.set_xlabel("share of 95 % intervals that contain the truth")
        left.set_yticks(range(len(METHODS)), list(METHODS))
        left.invert_yaxis()
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        yield Drawn(
            figure,
            pd.DataFrame(found).drop(columns="squares"),
            "Left: variance relative to IPS. Right: share of 95 % intervals that contain the "
            "truth, with the Monte Carlo error; the dashed line is 95 %, the dotted 93 %.",
            "Variance ratios and coverage of five estimators in three regimes",
        )


def verdicts(rows: Sequence[Summary], n: int) -> tuple[Verdict, ...]:
    """Judge what we promise, and what models are said to buy."""
    by = {(row.regime, row.method): row for row in rows}
    promised = [by[PROMISED, name] for name, m in METHODS.items() if m.interval == "corrected"]
    low, high = (f(row.coverage for row in promised) for f in (min, max))
    rare, common = [by[name, HURDLE] for name in RARE], by[COMMON, HURDLE]
    ratios = ", ".join(f"{row.variance_ratio:.3f} ({row.regime})" for row in rare)
    return (
        _above(
            f"Our target: corrected 95 % intervals cover at least 93 % at 1 % and n = {n}",
            promised,
            f"coverage {low:.3f} to {high:.3f}",
        ),
        _smaller(
            "Doubly robust estimation with the hurdle model has a smaller variance than IPS when "
            "rewards are rare",
            by,
            rare,
            f"variance over that of IPS: {ratios}",
        ),
        _smaller(
            "It has a smaller variance than IPS when one reward in five is not zero",
            by,
            [common],
            f"{common.variance_ratio:.3f} times that of IPS; the one-part model "
            f"{by[COMMON, ONE_PART].variance_ratio:.3f} times",
        ),
    )


def _above(claim: str, rows: Sequence[Summary], words: str) -> Verdict:
    """Judge that every method covers as often as promised."""
    found = [decide_share(round(row.coverage * row.logs), row.logs, PROMISE) for row in rows]
    evidence = [f"{r.method}: covered minus {PROMISE:g}: {d}" for r, d in zip(rows, found)]
    return decide(claim, found, f" ({words})", evidence, side=1)


def _smaller(
    claim: str, by: Mapping[tuple[str, str], Summary], rows: Sequence[Summary], words: str
) -> Verdict:
    """Judge that the mean squared deviation is smaller than that of IPS, log by log."""
    found = []
    for row in rows:
        ips = by[row.regime, "IPS"].squares
        seen = [by[row.regime, method].squares.max() for method in METHODS]
        worst = (-float(ips.max()), float(max(seen)))
        found.append(decide_mean(row.squares - ips, worst))
    evidence = [f"{r.regime}: variance minus that of IPS: {d}" for r, d in zip(rows, found)]
    return decide(claim, found, f" ({words})", evidence)


def _points(ax: Axes, rows: list[Summary], what: str, error: str) -> None:
    looks = zip(("#0072B2", "#D55E00", "#009E73"), ("o", "s", "^"))
    for i, (regime, (color, marker)) in enumerate(zip(REGIMES, looks)):
        part = [row for row in rows if row.regime == regime.name]
        ax.errorbar(
            [getattr(row, what) for row in part],
            np.arange(len(part)) + 0.2 * (i - 1),
            xerr=[row.quantile * getattr(row, error) for row in part],
            color=color,
            marker=marker,
            linestyle="none",
            label=regime.name,
        )
