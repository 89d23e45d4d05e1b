"""Policies decide as they did when `tests/recorded.json` was written."""

from __future__ import annotations

import json

import pytest

from tests import record

RECORDED = json.loads(record.FILE.read_text())
SPECS = record.specs()


def test_no_recorded_policy_is_gone() -> None:
    assert set(RECORDED) <= set(SPECS)


@pytest.mark.parametrize("name", RECORDED)
def test_decisions(name: str) -> None:
    assert record.played(*SPECS[name]) == RECORDED[name]
