"""Policies decide as they did when `tests/recorded.json` was written."""

from __future__ import annotations

import json

import pytest

from tests import record

RECORDED = json.loads(record.FILE.read_text())
SPECS = record.specs()


def test_no_recorded_policy_is_gone() -> None:
    assert set(RECORDED) <= set(SPECS)


@pytest.mark.parametrize(
    "name",
    [  # wrapped policies take long to compile
        pytest.param(name, marks=[pytest.mark.slow] if "by category" in name else [])
        for name in RECORDED
    ],
)
def test_decisions(name: str) -> None:
    assert record.played(*SPECS[name]) == RECORDED[name]
