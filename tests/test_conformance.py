"""Every policy of the registry keeps every promise of the public suite."""

from __future__ import annotations

import pytest

from tests.policies import SPECS
from zib.core import kernel
from zib.env import ExponentialMAB, GaussianMAB, MixtureMAB
from zib.testing import check_environment, check_policy


@pytest.mark.parametrize("name", SPECS)
def test_policy(name: str) -> None:
    check_policy(SPECS[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in kernel.REGISTRY if t.__module__.startswith("zib.")}
    assert native == {type(spec) for spec in SPECS.values()}


@pytest.mark.parametrize(
    "env",
    [
        GaussianMAB(means=[1.0, -2.0], probs=[0.3, 0.9], sigma=0.5),
        MixtureMAB(means=[1.0, 2.0], probs=[0.3, 0.01], sigma=0.5),
        ExponentialMAB(means=[1.0, 2.0], probs=[0.3, 1.0]),
    ],
)
def test_environment(env: object) -> None:
    check_environment(env)
