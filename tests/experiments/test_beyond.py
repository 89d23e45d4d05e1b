"""The experiments beyond the paper, run small, and their verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest

from zib import theory
from zib.experiments import limit, noknobs, noknobs_worlds, sparsity
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


def test_the_prize_is_judged_at_its_horizon_only() -> None:
    found = limit.Prize(1_000_000, "ZI posterior", 100.0, {"a": 1300.0, limit.CHERNOFF: 900.0})
    assert limit._prize_verdict(found).status == "holds"
    assert limit._prize_verdict(found._replace(regret=110.0)).status == "fails"
    assert limit._prize_verdict(found._replace(horizon=10_000)).status == "open"


def test_cost_of_knowing_nothing() -> None:
    """The interval of a ratio of paired means, against a bootstrap of the replications."""
    rng = np.random.default_rng(0)
    base = rng.gamma(5.0, 20.0, 400)
    curves = np.stack([1.1 * base + rng.normal(0, 20, 400), base, 3 * base])[:, :, None]
    labels = (noknobs.DEFAULT, "good", "bad")
    pulls = np.zeros((3, 400, 2), dtype=np.int64)
    found = noknobs.cost("w", Results(labels, np.array([9]), curves, curves, pulls, {}))
    assert found.best == "good"
    assert found.ratio == pytest.approx(curves[0].mean() / curves[1].mean())
    picks = rng.integers(0, 400, (4000, 400))
    ratios = curves[0, picks, 0].mean(axis=1) / curves[1, picks, 0].mean(axis=1)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * ratios.std(), rel=0.1)


def test_worlds_without_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every world can be made; a small run of three kinds of them is judged and drawn."""
    everything = noknobs_worlds.worlds(100)
    names = [world.name for world in everything]
    assert len(names) == len(set(names)) >= 24
    for world in everything:
        assert noknobs.DEFAULT in world.policies
        instance = world.env.instance(np.random.default_rng(0))
        assert instance.arm_means.size == world.env.n_arms
    keep = (noknobs.DEFAULT, "ZI-UCB", "ZI-IMED, lognormal", "ε-greedy")
    chosen = [
        world._replace(horizon=300, policies={k: v for k, v in world.policies.items() if k in keep})
        for world in (everything[0], everything[-2], everything[names.index("Pareto, index 1.8")])
    ]
    monkeypatch.setattr(noknobs, "worlds", lambda longest: chosen)
    record = noknobs.run(Context("quick", 0, 1, tmp_path))
    assert (tmp_path / "noknobs.png").exists()
    assert len(record.tables[0].rows) == 3
    assert [verdict.status in ("holds", "partly", "fails", "open") for verdict in record.verdicts]


def test_skewed_arms_have_the_means_they_should() -> None:
    rng = np.random.default_rng(1)
    for maker in (
        noknobs_worlds.SkewedMAB("lognormal", 0.3, 1.0),
        noknobs_worlds.SkewedMAB("pareto", 3.0, 4.0),
    ):
        arm = maker.instance(rng).laws[0]
        draws = arm.sample(rng, 400_000)
        error = math.sqrt(arm.variance / 400_000)
        assert abs(draws.mean() - arm.mean) < 5 * error  # fails with probability below 1e-5
