"""Elementary functions without cancellation, for single numbers, compiled or interpreted."""

from __future__ import annotations

import math

from zib.core.kernel import borrowing


@borrowing
def log1p(x: float) -> float:
    """Return log(1 + x) for x > -1, relative error below 2e-14, at the price of one ``log``."""
    if -0.01 < x < 0.01:
        return x * (
            1.0
            - x
            * (
                0.5
                - x
                * (
                    0.3333333333333333
                    - x * (0.25 - x * (0.2 - x * (0.16666666666666666 - x * 0.14285714285714285)))
                )
            )
        )
    return math.log(1.0 + x)


@borrowing
def one_minus_exp(y: float) -> float:
    """Return 1 - exp(-y) for y > -700, relative error below 2e-14."""
    if -0.01 < y < 0.01:
        return y * (
            1.0
            - y
            * (
                0.5
                - y
                * (
                    0.16666666666666666
                    - y
                    * (0.041666666666666664 - y * (0.008333333333333333 - y * 0.001388888888888889))
                )
            )
        )
    return 1.0 - math.exp(-y)


@borrowing
def log1p_defect(x: float) -> float:
    """Return x - log(1 + x) >= 0 for x > -1 without cancellation."""
    if -0.125 < x < 0.125:
        # log(1+x) = 2 artanh(y) with y = x/(2+x), and x - 2y = x y.
        y = x / (2.0 + x)
        z = y * y
        tail = z * (
            0.3333333333333333
            + z
            * (
                0.2
                + z
                * (
                    0.14285714285714285
                    + z * (0.1111111111111111 + z * (0.09090909090909091 + z * 0.07692307692307693))
                )
            )
        )
        return y * (x - 2.0 * tail)
    return x - math.log(1.0 + x) if x > -1.0 else math.inf


@borrowing
def power(base: float, exponent: float) -> float:
    """Return base**exponent for base >= 0; ``inf`` where it overflows."""
    if exponent == 0.0:
        return 1.0
    if exponent == 1.0:
        return base
    if base <= 0.0:
        return 0.0 if exponent > 0.0 else math.inf
    log_value = exponent * math.log(base)
    return math.exp(log_value) if log_value < 709.0 else math.inf
