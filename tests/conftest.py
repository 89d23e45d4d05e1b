from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests import contextual_policies, policies
from zib import mab
from zib.core.entry import interpreted

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
# Variants and baselines that only the slow tests compile; what can be interpreted is tested always.
LATE = (mab.MOTS, mab.UCBV, mab.ZIExponentialTS, mab.ZIStableTS)


def spec_of(item: pytest.Item) -> Any:
    """Return the policy a test is about: one of its parameters, or the one with that name."""
    given = getattr(item, "callspec", None)
    for value in given.params.values() if given else ():
        spec = SPECS.get(value.removeprefix("contextual ")) if isinstance(value, str) else value
        if isinstance(spec, tuple) and hasattr(spec, "_fields"):
            return spec
    return None


def compiles(item: pytest.Item) -> bool:
    """Whether a test of a policy runs compiled code: all but most checks of multi-armed ones."""
    check = item.callspec.params.get("check", "compiled")  # type: ignore[attr-defined]
    return "compiled" in check or item.path.stem != "test_conformance"


# Examples that would compile for seconds what no other test needs.
INTERPRETED = {
    "zib.contextual.adaptive.Adaptive",
    "zib.contextual.components.GLMModel",
    "zib.mab.wrappers.Windowed",
    "zib.online.contextual.ContextualBandit",
}


def interpret(item: pytest.Item) -> None:
    """Have a test run without compiling, where no fixture of ours reaches it."""
    run = item.runtest

    def runtest() -> None:
        with interpreted():
            run()

    item.runtest = runtest  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What has to be compiled for a further kind of the same policy is slow, or for a late one.

    A further kind has another law of rewards, or another policy inside.
    """
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name in INTERPRETED:
            interpret(item)
        spec = spec_of(item)
        if spec is None or not compiles(item):
            continue
        if isinstance(spec, LATE) or kind(spec) != FIRST.get(type(spec), kind(spec)):
            item.add_marker(pytest.mark.slow)


def group_of(nodeid: str) -> str:
    """Name what a test has in common with others that compile the same: a policy, or its file.

    All contextual policies share their models.
    """
    if "contextual" in nodeid:
        return "contextual"
    file, _, rest = nodeid.partition("::")
    given = rest.partition("[")[2].removesuffix("]")
    names = [name for name in SPECS if given == name or given.startswith(f"{name}-")]
    return type(SPECS[max(names, key=len)]).__name__ if names else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a group to one worker, since workers compile for themselves.

    (`--dist loadgroup` of pytest-xdist 3.8 does nothing under pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.fixture(autouse=True, scope="session")
def _own_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests store apart from what the user stored."""
    os.environ["ZIB_STORE"] = str(tmp_path_factory.mktemp("store"))


@pytest.fixture
def interpreting() -> Iterator[None]:
    """Run a test without compiling: the conformance suite compares compiled code with this."""
    with interpreted():
        yield


@pytest.fixture(params=["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test interpreted and, with the slow ones, compiled."""
    with interpreted() if request.param == "interpreted" else nullcontext():
        yield


@pytest.fixture
def seed() -> int:
    """The seed of a test; set ZIB_TEST_SEED to run the suite on another one."""
    return int(os.environ.get("ZIB_TEST_SEED", "20250801"))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
