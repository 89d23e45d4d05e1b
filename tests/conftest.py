from __future__ import annotations

import os

import numpy as np
import pytest

from tests import contextual_policies, policies

SPECS = {**contextual_policies.SPECS, **policies.SPECS}


def _worker(item: pytest.Item) -> str:
    """Name what a test has in common with others that compile the same code."""
    given = getattr(item, "callspec", None)
    for value in given.params.values() if given else ():
        spec = SPECS.get(value.removeprefix("contextual ")) if isinstance(value, str) else value
        if isinstance(spec, tuple) and hasattr(spec, "_fields"):
            return type(spec).__name__
    return item.location[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of one policy, or else of one file, to one worker: each compiles for itself."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_worker(item)))


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
