from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture
def seed() -> int:
    """The seed of a test; set ZIB_TEST_SEED to run the suite on another one."""
    return int(os.environ.get("ZIB_TEST_SEED", "20250801"))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
