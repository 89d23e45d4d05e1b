from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tests import contextual_policies, policies

SPECS = {**contextual_policies.SPECS, **policies.SPECS}


def kind(spec: Any) -> str:
    """Name what Numba compiles for a spec: its type, and those of the specs and tuples inside."""
    size = "" if hasattr(spec, "_fields") else len(spec)
    return (
        f"{type(spec).__name__}{size}({[kind(part) for part in spec if isinstance(part, tuple)]})"
    )


FIRST: dict[type, str] = {}  # the kind of the first example of each class
for _spec in (*policies.SPECS.values(), *contextual_policies.SPECS.values()):
    FIRST.setdefault(type(_spec), kind(_spec))


def spec_of(item: pytest.Item) -> Any:
    """Return the policy a test is about: one of its parameters, or the one with that name."""
    given = getattr(item, "callspec", None)
    for value in given.params.values() if given else ():
        spec = SPECS.get(value.removeprefix("contextual ")) if isinstance(value, str) else value
        if isinstance(spec, tuple) and hasattr(spec, "_fields"):
            return spec
    return None


def compiles(item: pytest.Item) -> bool:
    """Whether a test of a policy runs compiled code: all but the checks that say otherwise."""
    return "compiled" in item.callspec.params.get("check", "compiled")  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Compile little: tests of one policy, or else of one file, go to one worker.

    What has to be compiled for a further kind of the same policy (another law of rewards, another
    inner policy) is slow.
    """
    for item in items:
        spec = spec_of(item)
        group = item.location[0] if spec is None else type(spec).__name__
        item.add_marker(pytest.mark.xdist_group(group))
        if spec is not None and kind(spec) != FIRST.get(type(spec), kind(spec)) and compiles(item):
            item.add_marker(pytest.mark.slow)


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
