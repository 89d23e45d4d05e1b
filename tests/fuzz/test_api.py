"""One bad argument in a call of anything public is answered as promised; see `tests.fuzz.api`."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zib
import zib.advise
import zib.live
import zib.ope
from tests.fuzz import seeds
from zib.core.validate import InvalidParameterError, shown

ROOT = Path(__file__).parents[2]
# What takes no argument to spoil, is a type of results, or is entered by its author at import.
NO_CALL = {
    "CLogLog", "CategoryBlock", "Cauchit", "CheckedPolicy", "ComponentModel", "ContextBlock",
    "ContextualEnvironment", "DriftingRun", "Environment", "Huber", "Identity", "Law", "Log",
    "Logit", "MovingMAB", "Paths", "Probit", "Ridge", "RoundBlock", "SklearnModel", "Spec", "Tail",
    "UserModel", "ZIAdaptive", "list_ids", "register", "register_link", "register_policy",
    # kernels of a link: for single numbers, unchecked, called by compiled code
    "derivative", "inverse", "log_complement", "log_value", "value",
}  # fmt: skip


def fuzzed(seed: int, seconds: float, tmp_path: Path) -> dict[str, Any]:
    """Run the fuzzer where nothing is compiled, in a folder of its own."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    command = ["-m", "tests.fuzz.api", "--seed", str(seed), "--seconds", str(seconds)]
    ran = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def check(seconds: float, least: int, tmp_path: Path) -> None:
    seed = seeds.seed()
    answers = fuzzed(seed, seeds.seconds(seconds), tmp_path)
    wrong = "\n".join(f"{c}({p}={v}): {what}" for c, p, v, what in answers["found"][:20])
    assert not answers["found"], f"ZIB_FUZZ_SEED={seed}, {len(answers['found'])} answers:\n{wrong}"
    if "ZIB_FUZZ_SECONDS" not in os.environ:
        assert answers["done"] >= least


def test_bad_arguments_are_refused_in_the_promised_form(tmp_path: Path) -> None:
    check(2.0, 60, tmp_path)


@pytest.mark.slow
def test_every_bad_argument_is_refused_in_the_promised_form(tmp_path: Path) -> None:
    check(1000.0, 35_000, tmp_path)


def test_no_public_name_is_left_out() -> None:
    from tests.fuzz import calls

    known = {call.name.rpartition(".")[2] for call in (*calls.constructors(), *calls.formulas())}
    for module in (zib.theory, zib.mab, zib.contextual, zib.env):
        public = {name for name in module.__all__ if callable(getattr(module, name))}
        missing = sorted(public - NO_CALL - known)
        assert not missing, f"add a valid call of {missing} to tests/fuzz/calls.py"
    source = inspect.getsource(calls)
    for kind in (zib.Bandit, zib.ContextualBandit, zib.live.Ledger, zib.live.Client):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
                assert f'"{name}"' in source, name


def test_values_in_messages_are_short_and_one_line() -> None:
    for value in ("x" * 100_000, [0.5] * 50_000, 10**5000, np.ones((300, 300))):
        assert len(shown(value)) <= 60
        assert shown(value).isprintable()
    assert len(str(InvalidParameterError(f"`a` must be small; got {'x' * 9999}"))) <= 300


def test_a_value_that_cannot_be_printed_is_described() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Broken" in shown(Broken())
    assert shown("\x1b[31mred\n") == "'\\x1b[31mred\\n'"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zib.Bandit(arms="abc"), "`arms` must be a sequence; got 'abc'"),
        (lambda: zib.Bandit(n_arms=2, seed=-1), "`seed` must be None, a whole number >= 0"),
        (lambda: zib.Bandit(n_arms=2, seed="12"), "`seed` must be None, a whole number >= 0"),
        (lambda: zib.Bandit(n_arms=10**12), r"`n_arms` must lie in \[1, 10000000\]"),
        (lambda: zib.Bandit(arms=[1j]), r"`arms` must be a label .*; got 1j of type complex"),
        (
            lambda: zib.Bandit(n_arms=2).update_many(
                [0, 1], np.ma.array([1.0, 1e9], mask=[False, True])
            ),
            "`rewards` must have no masked entries",
        ),
        (lambda: zib.theory.hoeffding_radius("100", 0.05), "`n` must hold numbers; got '100'"),
        (lambda: zib.theory.hoeffding_radius(1 + 2j, 0.05), "`n` must hold numbers"),
        (
            lambda: zib.theory.hoeffding_radius(10**400, 0.05),
            r"`n` must hold numbers below 1\.8e308",
        ),
        (lambda: zib.mab.ZITS(horizon=10**400, sigma=1.0), "`horizon` must be a finite number"),
    ],
)
def test_what_used_to_be_taken(call: Any, message: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=message):
        call()


def test_seeds_that_numpy_takes_are_taken() -> None:
    for seed in (7, np.int64(7), 2**100, [1, 2], np.array([1, 2])):
        bandit = zib.Bandit(n_arms=3, seed=seed)  # type: ignore[arg-type]
        assert bandit.rng.random() == np.random.default_rng(seed).random()
    zib.Bandit(n_arms=3, seed=np.random.SeedSequence(3))  # type: ignore[arg-type]
