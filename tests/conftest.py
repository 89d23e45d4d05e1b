from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests store apart from what the user stored."""
    os.environ["ZIB_STORE"] = str(tmp_path_factory.mktemp("store"))


@pytest.fixture
def seed() -> int:
    """The seed of a test; set ZIB_TEST_SEED to run the suite on another one."""
    return int(os.environ.get("ZIB_TEST_SEED", "20250801"))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
