"""What telling zeros apart is worth: the widths of upper bounds with and without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zib import theory
from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import ArmSummary


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
