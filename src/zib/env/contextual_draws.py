"""What compiled contextual environments share: links and noises by name, means and rewards."""

from __future__ import annotations

import math
from typing import Any, Literal

from zib.contextual.link import value
from zib.contextual.links import StandardLink
from zib.core.kernel import jitable
from zib.env.rewards import Exponential, Gaussian, GaussianMixture, Law

LinkName = Literal["probit", "logit", "cauchit", "cloglog", "log"]
Noise = Literal["gaussian", "mixture", "exponential"]
Transform = Literal["sin", "identity"]

LINK_NAMES: tuple[LinkName, ...] = ("probit", "logit", "cauchit", "cloglog", "log")
NOISES: tuple[Noise, ...] = ("gaussian", "mixture", "exponential")
TRANSFORMS: tuple[Transform, ...] = ("sin", "identity")
# one type of link, so that one compilation serves all five
LINKS: dict[str, Any] = {name: StandardLink(name=name) for name in LINK_NAMES}
_MIXTURE, _EXPONENTIAL = 1, 2  # positions in NOISES and TRANSFORMS
_SINE = 0

# The mixture noise is ½N(−a, s²) + ½N(a, s²) with a² + s² = 1: two clear peaks, variance 1.
MIXTURE_SD = 0.5
MIXTURE_OFFSET = math.sqrt(0.75)
LARGEST_FEATURE = 1e6  # `sine` is accurate well beyond it


def noise_law(noise: Noise, sigma: float) -> Law:
    """Return a law that differs from that of the noise by its mean only."""
    if noise == "gaussian":
        return Gaussian(0.0, sigma)
    if noise == "mixture":
        return GaussianMixture(0.0, MIXTURE_SD * sigma, MIXTURE_OFFSET * sigma)
    return Exponential(sigma)


_INVERSE_PI = 1.0 / math.pi
# π in three parts; the first has 24 bits, so that its multiples below 2^29 are exact
_PI_HIGH = float.fromhex("0x1.921fb5p+1")
_PI_MIDDLE = math.pi - _PI_HIGH
_PI_LOW = 1.2246467991473532e-16
_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest whole number
_S3, _S5, _S7, _S9, _S11, _S13, _S15, _S17, _S19, _S21 = (
    (-1.0) ** (i // 2) / math.factorial(i) for i in range(3, 22, 2)
)


@jitable
def sine(x: float) -> float:
    """Return sin(x) to within 3e-16 for |x| ≤ 1e8.

    Nothing but sums and products, so the compiler handles several numbers at once, which it does
    not with the sine of the C library; that one would take most of the time of a round.
    """
    n = (x * _INVERSE_PI + _ROUND) - _ROUND
    r = ((x - n * _PI_HIGH) - n * _PI_MIDDLE) - n * _PI_LOW
    odd = abs(n - 2.0 * ((n * 0.5 + _ROUND) - _ROUND))
    y = r * r
    p = _S19 + y * _S21
    p = _S17 + y * p
    p = _S15 + y * p
    p = _S13 + y * p
    p = _S11 + y * p
    p = _S9 + y * p
    p = _S7 + y * p
    p = _S5 + y * p
    p = _S3 + y * p
    return (r + r * (y * p)) * (1.0 - 2.0 * odd)


@jitable
def _draw_noise(noise: int, sigma: float, rng: Any) -> float:
    if noise == _EXPONENTIAL:
        drawn: float = rng.standard_exponential() - 1.0
    else:
        centre, sd = 0.0, 1.0
        if noise == _MIXTURE:
            centre = MIXTURE_OFFSET if rng.random() < 0.5 else -MIXTURE_OFFSET
            sd = MIXTURE_SD
        drawn = centre + sd * rng.standard_normal()
    return sigma * drawn


@jitable
def settle(
    link: Any, noise: int, sigma: float, rng: Any, reward: Any, mean: Any, t: int, count: int
) -> None:
    """Turn the linear predictors in `reward` (occurrence) and `mean` (magnitude) into the two.

    All actions of a round share one uniform number and one noise.
    """
    u = rng.random()
    noise_now = _draw_noise(noise, sigma, rng)
    for k in range(count):
        p = min(value(link, reward[t, k]), 1.0)
        magnitude = mean[t, k]
        mean[t, k] = p * magnitude
        reward[t, k] = magnitude + noise_now if u < p else 0.0


@jitable
def transform_and_predict(
    transform: int,
    beta: Any,
    theta: Any,
    z: Any,
    w: Any,
    reward: Any,
    mean: Any,
    t: int,
    count: int,
) -> None:
    """Write w = ψ(z), and the linear predictors into `reward` and `mean`."""
    for k in range(count):
        mean[t, k] = 0.0
        reward[t, k] = 0.0
    for j in range(beta.size):
        b = beta[j]
        c = theta[j]
        if transform == _SINE:
            for k in range(count):
                w[t, j, k] = sine(z[t, j, k])
        else:
            for k in range(count):
                w[t, j, k] = z[t, j, k]
        for k in range(count):
            mean[t, k] += b * z[t, j, k]
            reward[t, k] += c * w[t, j, k]
