"""Every policy of the registry keeps every promise of the public suite."""

from __future__ import annotations

import pytest

from tests.policies import SPECS, TOLD
from zib.core import kernel
from zib.testing import POLICY_CHECKS, policy_checks_of

ALL = SPECS | TOLD
# simulations compile the kernels of every policy; the same for a bandit is slow, but for these
BANDITS = ("zi-ucb", "ucb1", "windowed zi-ts")
FIRST = {type(spec): name for name, spec in reversed(ALL.items())}


def is_slow(name: str, check: str) -> bool:
    if check == "a_thousand_arms_work":
        return FIRST[type(ALL[name])] != name
    return check == "compiled_bandit_decides_as_interpreted" and name not in BANDITS


CASES = [
    pytest.param(name, check, marks=pytest.mark.slow if is_slow(name, check) else ())
    for name, spec in ALL.items()
    for check in policy_checks_of(spec)
]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_policy(name: str, check: str) -> None:
    POLICY_CHECKS[check](ALL[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in kernel.REGISTRY if t.__module__.startswith("zib.mab.")}
    assert native == {type(spec) for spec in SPECS.values()}
