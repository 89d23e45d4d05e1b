"""Every policy of the registry keeps every promise of the public suite."""

from __future__ import annotations

import pytest

from tests.policies import SPECS, TOLD
from zib.core import kernel
from zib.testing import POLICY_CHECKS, policy_checks_of

ALL = SPECS | TOLD
# simulations compile what learns categories, too; the same for a bandit is slow
CASES = [
    pytest.param(
        name,
        check,
        marks=pytest.mark.slow if name in TOLD and check.startswith("compiled_bandit") else (),
    )
    for name, spec in ALL.items()
    for check in policy_checks_of(spec)
]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_policy(name: str, check: str) -> None:
    POLICY_CHECKS[check](ALL[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in kernel.REGISTRY if t.__module__.startswith("zib.")}
    assert native == {type(spec) for spec in SPECS.values()}
