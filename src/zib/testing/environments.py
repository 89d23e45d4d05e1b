"""What every environment must keep to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.rng import Role, stream


def check_environment(env: Any, *, draws: int = 20_000) -> None:
    """Check an environment: shapes, determinism, and that means are what it says.

    The last check has an error probability below 1e-8 per arm where rewards have a finite variance
    (six standard errors); arms with infinite variance are skipped.
    """
    one = env.instance(stream(1, Role.INSTANCE, 0))
    two = env.instance(stream(1, Role.INSTANCE, 0))
    means = np.asarray(one.arm_means, dtype=np.float64)
    assert means.shape == (one.n_arms,), f"arm_means has shape {means.shape}, not ({one.n_arms},)"
    assert np.array_equal(means, two.arm_means), "the same stream must give the same instance"
    for arm in range(one.n_arms):
        first = one.sample(arm, stream(1, Role.ENVIRONMENT, 0, arm), draws)
        again = two.sample(arm, stream(1, Role.ENVIRONMENT, 0, arm), draws)
        assert first.shape == (draws,), f"sample returned shape {first.shape}, not ({draws},)"
        assert np.isfinite(first).all(), f"arm {arm} paid a reward that is not finite"
        assert np.array_equal(first, again), "the same stream must give the same rewards"
        spread = float(np.sqrt(one.variances[arm])) if hasattr(one, "variances") else math.inf
        if math.isfinite(spread):
            off = abs(float(first.mean()) - means[arm])
            assert off <= 6 * spread / math.sqrt(draws) + 1e-12, (
                f"arm {arm} should pay {means[arm]:g} on average and paid {first.mean():g}"
            )
