"""The experiments beyond the paper, run small, and their verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest

from zib import theory
from zib.experiments import limit, sparsity
from zib.experiments.record import Context
from zib.sim import Results


def test_lower_bounds_are_those_of_the_theory() -> None:
    for instance in limit.instances():
        means, probs = instance.env.magnitudes, instance.env.probs
        best = float((means * probs).max())
        rate = 0.0
        for mu, p in zip(means, probs):
            if mu * p < best:
                family = instance.options.get("family", "gaussian")
                sigma = 1.0 if family == "gaussian" else None
                rate += (best - mu * p) / theory.divergence_to(mu, p, best, sigma, family=family)
        assert instance.rate == pytest.approx(rate, rel=1e-9)


def test_slope_of_known_curves() -> None:
    instance = limit.instances()[0]
    rounds = np.unique(np.geomspace(100, 100_000, 50).astype(np.int64))
    regret = np.stack([c * instance.rate * np.log(rounds) for c in (0.9, 1.1)])[None]
    result = Results(("x",), rounds, regret, regret, np.zeros((1, 2, 3), dtype=np.int64), {})
    found = limit.slope(instance, "x", result)
    assert found.slope == pytest.approx(1.0)
    assert found.high - found.slope == pytest.approx(1.96 * 0.1 * math.sqrt(2) / math.sqrt(2))


def test_verdict_takes_the_best_of_each_instance() -> None:
    def row(instance: str, policy: str, slope: float, half: float) -> limit.Slope:
        return limit.Slope(instance, policy, 1.0, 1.0, slope, slope - half, slope + half)

    good = [row("a", "x", 1.0, 0.1), row("a", "y", 3.0, 0.1), row("b", "x", 1.1, 0.1)]
    assert limit._verdict(good, 1000).status == "holds"
    assert limit._verdict([*good, row("c", "x", 1.2, 0.1)], 1000).status == "open"
    assert limit._verdict([*good, row("c", "x", 1.6, 0.1)], 1000).status == "fails"


def test_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zib

    real = zib.simulate

    def small(specs, env, *, horizon, replications, checkpoints, **kwargs):  # type: ignore[no-untyped-def]
        rounds = checkpoints if isinstance(checkpoints, int) else [10, 50, 500]
        return real(specs, env, horizon=500, replications=2, checkpoints=rounds, **kwargs)

    monkeypatch.setattr(zib, "simulate", small)
    monkeypatch.setattr(sparsity, "PROBS", (0.3, 0.01))
    for module in (limit, sparsity):
        record = module.run(Context("quick", 0, 1, tmp_path / module.ID))
        assert record.verdicts[0].status in ("holds", "fails", "open")
        assert (tmp_path / module.ID / f"{module.ID}.png").exists()
        assert record.tables[0].rows


def test_sparsity_verdict() -> None:
    def points(ours: float, theirs: float) -> list[sparsity.Point]:
        return [
            sparsity.Point(p, name, ours if name in sparsity.BEYOND else theirs, 1.0, 1.0)
            for p in sparsity.PROBS
            for name in (*sparsity.BEYOND, *sparsity.OTHERS)
        ]

    assert sparsity._verdict(points(10.0, 20.0)).status == "holds"
    assert sparsity._verdict(points(20.0, 10.0)).status == "fails"
    assert sparsity._verdict(points(10.0, 11.0)).status == "open"
