"""Every policy of the registry keeps every promise of the public suite."""

from __future__ import annotations

import pytest

from tests.policies import SPECS
from zib.core import kernel
from zib.testing import POLICY_CHECKS, policy_checks_of

CASES = [(name, check) for name, spec in SPECS.items() for check in policy_checks_of(spec)]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_policy(name: str, check: str) -> None:
    POLICY_CHECKS[check](SPECS[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in kernel.REGISTRY if t.__module__.startswith("zib.")}
    assert native == {type(spec) for spec in SPECS.values()}
