"""What every link must keep to."""

from __future__ import annotations

from typing import Any

import numpy as np

from zib import contextual


def check_link(link: Any) -> None:
    """Check a link: increasing, a true derivative, an inverse, finite everywhere, compilable."""
    grid = np.linspace(-5.0, 1.5, 66)
    values = np.array([contextual.value(link, z) for z in grid])
    slopes = np.array([contextual.derivative(link, z) for z in grid])
    assert (np.diff(values) > 0).all(), f"{link!r} is not increasing"
    step = 1e-5
    ahead = np.array([contextual.value(link, z + step) for z in grid])
    behind = np.array([contextual.value(link, z - step) for z in grid])
    assert np.allclose((ahead - behind) / (2 * step), slopes, rtol=1e-5, atol=1e-12), (
        f"the derivative of {link!r} is not that of its value"
    )
    back = np.array([contextual.inverse(link, m) for m in values])
    assert np.allclose(back, grid, rtol=1e-9, atol=1e-9), f"{link!r} is not undone by its inverse"
    for z in (-800.0, 800.0):
        found = (contextual.value(link, z), contextual.derivative(link, z))
        assert np.isfinite(found).all(), f"{link!r} is not finite at {z}: {found}"
    logs = np.exp([contextual.log_value(link, z) for z in grid])
    assert np.allclose(logs[values > 0], values[values > 0], rtol=1e-9), (
        f"the logarithm of {link!r} is not that of its value"
    )
