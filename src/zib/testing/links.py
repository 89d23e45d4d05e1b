"""What every link must keep to: one promise, one function with a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zib import contextual

_GRID = np.linspace(-5.0, 1.5, 66)


def check_link(link: Any) -> None:
    """Check a link against every promise of the library."""
    for check in LINK_CHECKS.values():
        check(link)


def _over_grid(function: Any, link: Any, z: Any = _GRID) -> Any:
    return np.array([function(link, x) for x in z])


def value_increases(link: Any) -> None:
    """A larger linear predictor means a larger mean."""
    values = _over_grid(contextual.value, link)
    assert (np.diff(values) > 0).all(), f"{link!r} is not increasing"


def derivative_is_that_of_the_value(link: Any) -> None:
    """The derivative agrees with the differences of values."""
    step = 1e-5
    slopes = _over_grid(contextual.derivative, link)
    ahead, behind = (_over_grid(contextual.value, link, _GRID + s) for s in (step, -step))
    assert np.allclose((ahead - behind) / (2 * step), slopes, rtol=1e-5, atol=1e-12), (
        f"the derivative of {link!r} is not that of its value"
    )


def inverse_undoes_the_value(link: Any) -> None:
    """The inverse finds the linear predictor of a mean."""
    back = _over_grid(contextual.inverse, link, _over_grid(contextual.value, link))
    assert np.allclose(back, _GRID, rtol=1e-9, atol=1e-9), f"{link!r} is not undone by its inverse"


def tails_are_finite(link: Any) -> None:
    """Values and slopes are finite for predictors of any size."""
    for z in (-800.0, 800.0):
        found = (contextual.value(link, z), contextual.derivative(link, z))
        assert np.isfinite(found).all(), f"{link!r} is not finite at {z}: {found}"


def logarithm_is_that_of_the_value(link: Any) -> None:
    """The logarithm of the value agrees with the value."""
    values = _over_grid(contextual.value, link)
    logs = np.exp(_over_grid(contextual.log_value, link))
    assert np.allclose(logs[values > 0], values[values > 0], rtol=1e-9), (
        f"the logarithm of {link!r} is not that of its value"
    )


_CHECKS = (
    value_increases,
    derivative_is_that_of_the_value,
    inverse_undoes_the_value,
    tails_are_finite,
    logarithm_is_that_of_the_value,
)
LINK_CHECKS: dict[str, Callable[[Any], None]] = {check.__name__: check for check in _CHECKS}
