"""Every policy of the registry keeps every promise of the public suite."""

from __future__ import annotations

import pytest

from tests.policies import SPECS
from zib.core import kernel
from zib.testing import check_policy


@pytest.mark.parametrize("name", SPECS)
def test_policy(name: str) -> None:
    check_policy(SPECS[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in kernel.REGISTRY if t.__module__.startswith("zib.")}
    assert native == {type(spec) for spec in SPECS.values()}
