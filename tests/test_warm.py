"""`warm_up` and ``zib warm``: afterwards nothing is compiled, and nothing was learned."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.core.event import install_recorder
from numba.np.ufunc.dufunc import DUFunc
from typer.testing import CliRunner

import zib
from tests import contextual_policies, policies
from zib import contextual, mab
from zib.cli import app
from zib.core import cache
from zib.core.entry import interpreted
from zib.online.base import OnlinePolicy


def check_nothing_changes(specs: Iterable[Any], contextual_specs: Iterable[Any]) -> None:
    with interpreted():
        for spec in specs:
            bandit = zib.Bandit(spec, n_arms=2, seed=1, inflated=-0.5, least_share=0.4)
            before = bandit.dumps()
            assert bandit.warm_up() > 0.0
            assert bandit.dumps() == before
        for spec in contextual_specs:
            for width in (2, (2, 3)):
                user = zib.ContextualBandit(spec, n_features=width, seed=1)
                before = user.dumps()
                assert user.warm_up() > 0.0
                assert user.dumps() == before


def test_warming_up_changes_nothing() -> None:
    check_nothing_changes([mab.UCB1()], [contextual.LaplaceTS(memory=256)])


@pytest.mark.slow
def test_warming_up_changes_nothing_for_any_policy() -> None:
    specs = [*policies.ONLINE.values(), *policies.TOLD.values()]
    check_nothing_changes(specs, contextual_policies.COMPILED.values())


def test_models_that_are_objects_have_nothing_to_compile() -> None:
    template = contextual_policies.SPECS[next(iter(contextual_policies.INTERPRETED))]
    assert zib.ContextualBandit(template, n_features=2, seed=1).warm_up() < 1.0


def test_a_bandit_beyond_its_horizon_warms_up_without_a_warning() -> None:
    with interpreted(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bandit = zib.Bandit(mab.ZITS(horizon=2, sigma=1.0), n_arms=2, seed=1)
        bandit.warm_up()
        assert not caught
        bandit.update_many([0, 1, 0], [0.0, 1.0, 0.0])
        assert len(caught) == 1  # which warming up did not use up


def compiled() -> int:
    """Count what Numba has compiled or loaded in this process."""
    gc.unfreeze()  # what is frozen is not listed, and tests of the service freeze
    things = gc.get_objects()
    kernels = [thing for thing in things if issubclass(type(thing), Dispatcher)]
    ufuncs = [thing for thing in things if issubclass(type(thing), DUFunc)]
    return sum(len(k.overloads) for k in kernels) + sum(len(u.types) for u in ufuncs)


@pytest.mark.slow
def test_after_warming_up_a_bandit_compiles_nothing() -> None:
    bandit = zib.Bandit(mab.NormalTS(sigma=1.0), arms=list("abcde"), seed=1)
    fresh = compiled()
    bandit.warm_up()
    before = compiled()
    assert before > fresh
    with install_recorder("numba:compile") as compilations:
        for options in ({}, {"arms": ["b", "e", "c"]}):
            bandit.select(**options)
            bandit.select_many(7, **options, return_propensity=True)
            bandit.indices(**options)
            bandit.propensities(**options)
        for arm in bandit.arms:
            bandit.update(arm, 1)
        bandit.update_many(np.array(["a", "b"]), np.array([0.0, 2.0], dtype=np.float32))
        bandit.set_shares(least_share=0.05, largest_share=0.4)
        bandit.select(return_propensity=True)
        bandit.means(anytime=True)
        bandit.revise("b", 2.0, 0.5)
        bandit.add_arm("f")
        bandit.remove_arm("a")
        twin = zib.Bandit.loads(bandit.dumps(), seed=np.random.default_rng(5))
        twin.merge(bandit)
        twin.update(twin.select(), 3.0)
    assert not compilations.buffer
    assert compiled() == before


@pytest.mark.slow
def test_after_warming_up_a_bandit_with_features_compiles_nothing(rng: Any) -> None:
    bandit = zib.ContextualBandit(n_features=4, arms=["a", "b", "c"], keep_rows=True, seed=1)
    bandit.warm_up()
    before = compiled()
    with install_recorder("numba:compile") as compilations:
        features = rng.normal(size=(3, 4))
        for given in (features, features.tolist(), np.asfortranarray(features), (features,) * 2):
            arm = bandit.select(given)
            bandit.update(arm, 1.0, given)
            bandit.indices(given)
            bandit.propensities(given)
            bandit.predict(given)
            bandit.update_many([arm] * 3, [0.0, 1.0, 2.0], given)
            bandit.select(given, arms=["c", "a", "b"])
            bandit.select_many(given)
            bandit.select_many(given, return_propensity=True)
            bandit.update(bandit.select(features[0]), 0.0, features[0])
        bandit.update("b", 4.0, features[0])
        bandit.revise("b", 4.0, 0.0, features[0])
        bandit.means(anytime=True)
        twin = type(bandit).loads(bandit.dumps())
        twin.update(twin.select(features), 3.0, features)
        twin.merge(bandit)
        twin.add_arm("d")
        twin.set_shares(least_share=0.1, largest_share=0.2)
        twin.select(features[1], arms=["d", "a"])
    assert not compilations.buffer
    assert compiled() == before


# ----------------------------------------------------------------------------------- from the shell


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, ["warm", *words], env={"COLUMNS": "300"})


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What would be warmed up, which is not done."""
    found: list[Any] = []
    monkeypatch.setattr(OnlinePolicy, "warm_up", lambda self: found.append(self) or 0.0)
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    return found


def test_policies_are_named_as_in_the_library(warmed: list[Any]) -> None:
    words = [
        "ZIUCB",
        "contextual.ZIUCB",
        "Windowed(ZIIMED)",
        "Disjoint(ZITS)",
        "ZIHeavyUCB",
        "Watching",
    ]
    with interpreted():
        done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert [type(bandit.spec) for bandit in warmed] == [
        mab.ZIUCB, contextual.ZIUCB, mab.Windowed, contextual.Disjoint, mab.ZIHeavyUCB,
        mab.Watching,
    ]  # fmt: skip
    assert type(warmed[2].spec.spec) is mab.ZIIMED
    assert type(warmed[3].spec.spec) is contextual.ZITS
    assert all(f"{word}: 0." in done.output for word in words)
    assert "kept in" in done.output


def test_saved_bandits_and_the_default_ones(warmed: list[Any], tmp_path: Path) -> None:
    with interpreted():
        zib.Bandit(mab.OutcomesKLUCB(categories=2), n_arms=2).save(tmp_path / "a.json")
        zib.ContextualBandit(contextual.LaplaceTS(), n_features=3).save(tmp_path / "b.json")
        assert invoke(str(tmp_path / "a.json"), str(tmp_path / "b.json")).exit_code == 0
        assert invoke().exit_code == 0
    assert [type(bandit.spec).__name__ for bandit in warmed] == [
        "OutcomesKLUCB", "LaplaceTS", "ZIAdaptive", "JointUCB", "Adaptive",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("ZITSS", "there is no policy 'ZITSS'; did you mean 'ZITS'?"),
        ("Anytime", "Anytime plays another policy; name it as in 'Anytime(…)'"),
        ("ZITS(UCB1)", "ZITS plays no other policy; got ZITS(UCB1)"),
        ("OutcomesKLUCB", "save a bandit that plays yours and give the file"),
        ("nowhere.json", "nowhere.json is neither a policy nor a file"),
        (__file__, "is not a saved zib.Bandit"),
    ],
)
def test_what_cannot_be_warmed_up_is_refused(warmed: list[Any], word: str, words: str) -> None:
    done = invoke(word)
    assert done.exit_code == 2
    assert words in done.output
    assert not warmed


def test_nothing_is_done_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FOLDER", None)
    assert "not kept on disk" in invoke("UCB1").output


@pytest.mark.slow
def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    code = """
import zib
from numba.core.event import install_recorder
with install_recorder("numba:compile") as compilations:
    bandit = zib.Bandit(zib.mab.UCB1(), n_arms=3, seed=1)
    bandit.update(bandit.select(), 1.0)
    bandit.update_many([1, 2], [0.0, 2.0])
    bandit.select(return_propensity=True)
    bandit.revise(2, 2.0, 0.0)
print(len(compilations.buffer))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    run("-m", "zib.cli", "warm", "UCB1")
    assert run("-c", code).strip() == "0"
