"""The experiments beyond the paper, run small, and their verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.made import panel, quick, results, small

from zib import theory
from zib.experiments import limit, noknobs, sparsity
from zib.experiments.harness import Scaled
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
    # two runs, at 0.9 and 1.1: Student's quantile with one degree of freedom is 12.7
    assert found.high - found.slope == pytest.approx(12.7062 * 0.1, rel=1e-4)


def test_verdict_takes_the_best_of_each_instance() -> None:
    def row(instance: str, policy: str, slope: float, half: float) -> limit.Slope:
        return limit.Slope(instance, policy, 1.0, 1.0, slope, slope - half, slope + half)

    good = [row("a", "x", 1.0, 0.1), row("a", "y", 3.0, 0.1), row("b", "x", 1.1, 0.1)]
    assert limit.slopes_verdict(good, 1000).status == "holds"
    assert limit.slopes_verdict([*good, row("c", "x", 1.2, 0.1)], 1000).status == "open"
    assert limit.slopes_verdict([*good, row("c", "x", 1.6, 0.1)], 1000).status == "fails"


@pytest.mark.slow
def test_records(tmp_path: Path) -> None:
    few = Scaled(quick=2, paper=2)
    crowd = sparsity.Crowd(20, 500, 2)
    for item in (
        small(limit.Limit, horizon=500, replications=few, rounds=[10, 50, 500]),
        small(
            sparsity.Sparsity,
            probs=(0.3, 0.01),
            horizon=500,
            replications=few,
            crowd=Scaled(quick=crowd, paper=crowd),
        ),
    ):
        record = item.run(quick(tmp_path / item.id))
        assert record.verdicts[0].status in ("holds", "fails", "open")
        assert (tmp_path / item.id / f"{item.id}.png").exists()
        assert record.tables[0].rows


def test_sparsity_verdict() -> None:
    def status(ours: float, theirs: float, noise: float = 0.01) -> str:
        labels = (*sparsity.BEYOND, *sparsity.OTHERS)
        levels = {name: ours if name in sparsity.BEYOND else theirs for name in labels}
        curves = {name: (lambda t, x=x: x * np.sqrt(t)) for name, x in levels.items()}
        found = []
        for prob in sparsity.PROBS:
            env = sparsity.RandomMAB("gaussian")
            found.append(panel(f"p about {prob:g}", env, curves, key={"prob": prob}))
            if noise > 0.01:  # not shared by the policies, unlike that of `panel`
                rng = np.random.default_rng(0)
                found[-1].result.regret[:] *= rng.lognormal(0, noise, (len(labels), 12, 1))
        return sparsity.lowest_everywhere(found).status

    assert status(10.0, 20.0) == "holds"
    assert status(20.0, 10.0) == "fails"
    assert status(10.0, 11.0, noise=1.0) == "open"


def test_many_arms_are_judged_by_the_interval_of_the_ratio() -> None:
    def status(share: float) -> str:
        curves = {sparsity.FLAT: np.sqrt, sparsity.LEARNED: lambda t: share * np.sqrt(t)}
        return sparsity.halved("200 arms", results(curves, replications=3)).status

    assert [status(share) for share in (0.4, 0.6)] == ["holds", "fails"]


def test_the_prize_is_judged_at_its_horizon_only() -> None:
    found = limit.Prize(1_000_000, "ZI posterior", 100.0, {"a": 1300.0, limit.CHERNOFF: 900.0})
    assert limit.prize_verdict(found).status == "holds"
    assert limit.prize_verdict(found._replace(regret=110.0)).status == "fails"
    assert limit.prize_verdict(found._replace(horizon=10_000)).status == "open"


def test_cost_of_knowing_nothing() -> None:
    """The interval of a ratio of paired means, against a bootstrap of the replications."""
    rng = np.random.default_rng(0)
    base = rng.gamma(5.0, 20.0, 400)
    curves = np.stack([1.1 * base + rng.normal(0, 20, 400), base, 3 * base])[:, :, None]
    labels = (noknobs.DEFAULT, "good", "bad")
    pulls = np.zeros((3, 400, 2), dtype=np.int64)
    found = noknobs.cost("w", Results(labels, np.array([9]), curves, curves, pulls, {}))
    assert found.second == "good"
    assert found.ratio == pytest.approx(curves[0].mean() / curves[1].mean())
    picks = rng.integers(0, 400, (4000, 400))
    ratios = curves[0, picks, 0].mean(axis=1) / curves[1, picks, 0].mean(axis=1)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * ratios.std(), rel=0.1)


def test_every_world_can_be_made() -> None:
    everything = noknobs.worlds(100)
    names = [world.name for world in everything]
    assert len(names) == len(set(names)) >= 24
    for world in everything:
        assert noknobs.DEFAULT in world.policies
        instance = world.env.instance(np.random.default_rng(0))
        assert instance.arm_means.size == world.env.n_arms


@pytest.mark.slow
def test_worlds_without_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small run of three kinds of worlds is judged and drawn."""
    everything = noknobs.worlds(100)
    names = [world.name for world in everything]
    keep = (noknobs.DEFAULT, "ZI-UCB", "ZI-IMED, lognormal", "ε-greedy")
    chosen = [
        world._replace(horizon=300, policies={k: v for k, v in world.policies.items() if k in keep})
        for world in (everything[0], everything[-2], everything[names.index("Pareto, index 1.8")])
    ]
    monkeypatch.setattr(noknobs, "worlds", lambda longest: chosen)
    record = noknobs.NoKnobs.run(quick(tmp_path))
    assert (tmp_path / "noknobs.png").exists()
    assert len(record.tables[0].rows) == 3
    assert {v.status for v in record.verdicts} <= {"holds", "partly", "fails", "open"}


def test_skewed_arms_have_the_means_they_should() -> None:
    rng = np.random.default_rng(1)
    for maker in (
        noknobs.SkewedMAB("lognormal", 0.3, 1.0),
        noknobs.SkewedMAB("pareto", 3.0, 4.0),
    ):
        arm = maker.instance(rng).laws[0]
        draws = arm.sample(rng, 400_000)
        error = math.sqrt(arm.variance / 400_000)
        assert abs(draws.mean() - arm.mean) < 5 * error  # fails with probability below 1e-5
