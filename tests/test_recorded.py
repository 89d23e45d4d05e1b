"""Policies decide as they did when `tests/recorded.json` was written."""

from __future__ import annotations

import json

import pytest

from tests import record

RECORDED = json.loads(record.FILE.read_text())
SPECS = record.specs()


def is_slow(name: str) -> bool:
    return name.startswith("contextual") and not name.endswith("joint ucb")


def test_no_recorded_policy_is_gone() -> None:
    assert set(RECORDED) <= set(SPECS)


@pytest.mark.parametrize(
    "name",
    [  # contextual policies take long to compile; one of them is compiled anyway
        pytest.param(name, marks=[pytest.mark.slow] if is_slow(name) else []) for name in RECORDED
    ],
)
def test_decisions(name: str) -> None:
    assert record.played(*SPECS[name]) == RECORDED[name]
