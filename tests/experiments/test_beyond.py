"""The experiments beyond the paper, run small, and their verdicts."""

from pathlib import Path

import numpy as np
import pytest
from tests.experiments.made import panel, played, quick, results, small

from zib import theory
from zib.experiments import limit, noknobs, rare, sparsity
from zib.experiments.harness import Panel, Scaled
from zib.experiments.record import Verdict
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
    assert found.runs == pytest.approx([0.9, 1.1])
    slope, _, high = found.interval
    assert slope == pytest.approx(1.0)
    # two runs, at 0.9 and 1.1: Student's quantile with one degree of freedom is 12.7
    assert high - slope == pytest.approx(12.7062 * 0.1, rel=1e-4)


def test_verdict_takes_the_best_of_each_instance() -> None:
    rng = np.random.default_rng(0)

    def row(instance: str, policy: str, slope: float, runs: int = 60) -> limit.Slope:
        return limit.Slope(instance, policy, 1.0, 1.0, slope + rng.normal(0, 0.05, runs))

    good = [row("a", "x", 1.0), row("a", "y", 1.6), row("b", "x", 1.1)]
    verdict = limit.slopes_verdict(good, 1000)
    assert verdict.status == "holds"
    assert "(a, x)" in verdict.words
    assert "(a, y)" not in verdict.words
    unsure = limit.slopes_verdict([*good, row("c", "x", 1.0, 6), row("c", "y", 3.0, 6)], 1000)
    assert unsure.status == "open"
    assert unsure.words.startswith("undecided at this scale (N = 3): ")
    assert limit.slopes_verdict([*good, row("c", "x", 1.6)], 1000).status == "fails"


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
                found[-1].result.regret[:] *= rng.lognormal(0, noise, (len(labels), 60, 1))
        return sparsity.lowest_everywhere(found).status

    assert status(10.0, 20.0) == "holds"
    assert status(20.0, 10.0) == "fails"
    assert status(10.0, 11.0, noise=1.0) == "open"


def test_many_arms_are_judged_against_half() -> None:
    def found(share: float, replications: int) -> Verdict:
        curves = {sparsity.FLAT: np.sqrt, sparsity.LEARNED: lambda t: share * np.sqrt(t)}
        crowd = Panel(name="200 arms", env=None, policies={}, horizon=9, replications=replications)
        return sparsity.halved(played(crowd, curves, replications))

    assert [found(share, 50).status for share in (0.4, 0.6)] == ["holds", "fails"]
    few = found(0.4, 3)
    assert (few.status, few.words) == ("open", "undecided at this scale (N = 3): 0.40 times")
    assert "with 200 arms that hardly ever pay, T = 9, " in few.claim


def test_the_prize_is_judged_at_its_horizon_only() -> None:
    curves = {"ZI-KL-UCB": lambda t: 90 + 0 * t, "ZI posterior": lambda t: 60 + 0 * t}
    rounds = [1000, limit.PRIZE_HORIZON, 10 * limit.PRIZE_HORIZON]
    ours = results(curves, rounds, replications=100)
    theirs = {limit.TIGHT: lambda t: 3000 + 0 * t, limit.CHERNOFF: lambda t: 90 + 0 * t}
    found = limit.prize(ours, results(theirs, rounds[:2], replications=100))
    assert (found.best, found.horizon, found.cases[0].n) == ("ZI posterior", 1_000_000, 50)
    verdict = limit.prize_verdict(found)
    assert verdict.status == "holds"
    assert f"50.0 times less than {limit.TIGHT}" in verdict.words
    worse = results({"x": lambda t: 400 + 0 * t}, rounds, replications=100)
    other = limit.prize(worse, results(theirs, rounds[:2], replications=100))
    assert limit.prize_verdict(other).status == "fails"
    short = limit.prize_verdict(found._replace(horizon=10_000))
    assert short.status == "open"
    assert short.claim == verdict.claim
    assert short.words.startswith("not asked at this scale")


def test_cost_of_knowing_nothing() -> None:
    """The best other policy is chosen on the first half and compared on the second."""
    rng = np.random.default_rng(0)
    base = rng.gamma(5.0, 20.0, 400)
    regret = np.stack([1.1 * base + rng.normal(0, 20, 400), base, 3 * base])[:, :, None]
    regret[1, 200:] *= 2.0
    labels = (noknobs.DEFAULT, "good", "bad")
    pulls = np.zeros((3, 400, 2), dtype=np.int64)
    found = noknobs.cost("w", Results(labels, np.array([9]), regret, regret, pulls, {}))
    assert (found.second, found.factor, found.n) == ("good", noknobs.TARGET, 200)
    assert found.ratio == pytest.approx(regret[0, 200:].mean() / regret[1, 200:].mean())
    assert found.lower


def test_quick_scale_plays_some_worlds_and_rivals() -> None:
    names = [world.name for world in noknobs.worlds(noknobs.STILL)]
    assert set(noknobs.QUICK_WORLDS) - set(names) <= {"RAND health insurance, resampled"}
    item = noknobs.NoKnobs(quick(Path()))
    panels = item.panels()
    assert {each.name for each in panels} == set(noknobs.QUICK_WORLDS) & set(names)
    for each in panels:
        assert noknobs.DEFAULT in each.policies
        assert set(each.policies) <= set(noknobs.QUICK_RIVALS)
        assert each.horizon <= 10_000


@pytest.mark.slow
def test_worlds_without_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small run of three kinds of worlds is judged and drawn."""
    monkeypatch.setattr(noknobs, "QUICK_WORLDS", noknobs.QUICK_WORLDS[:6:2])
    monkeypatch.setattr(noknobs, "QUICK_RIVALS", (noknobs.DEFAULT, "ZI-TS (told)", "ε-greedy"))
    record = small(noknobs.NoKnobs, longest=Scaled(quick=300, paper=300)).run(quick(tmp_path))
    assert (tmp_path / "noknobs.png").exists()
    assert len(record.tables[0].rows) == 3
    assert {v.status for v in record.verdicts} <= {"holds", "partly", "fails", "open"}
    assert record.notes[0].startswith("Quick scale: 3 of ")


def test_what_is_out_of_reach_with_a_rare_arm() -> None:
    """Regrets that one policy can have are told from those that nobody can have in both worlds."""
    prob, horizon = 0.01, 5_000
    possible = theory.rare_arm_regret(100, prob, horizon, rare.LOSS, rare.GAIN)

    def judged(share: float, replications: int = 200) -> rare.Case:
        """In each world another policy is the best, with `share` of a regret that is possible."""
        labels = rare.PLAYERS[:2]

        def world(which: int) -> Results:
            curves = {
                labels[i]: lambda t, i=i: 0 * t + (share if i == which else 3.0) * possible[which]
                for i in range(2)
            }
            return results(curves, [1, horizon], replications=replications)

        aim = rare.Aim(1.5, labels, "the best")
        return rare.Case(rare.Pair(prob, horizon, world(0), world(1)), aim)

    out_of_reach, in_reach = judged(0.5), judged(0.8)
    assert out_of_reach.labels == list(rare.PLAYERS[:2])
    assert out_of_reach.least == pytest.approx(2.0, rel=0.01)  # noise of 1 %, 100 runs
    assert in_reach.least == pytest.approx(1.25, rel=0.01)
    assert [case.decision.side for case in (out_of_reach, in_reach)] == [-1, 1]
    assert max(out_of_reach.ratios(rare.PLAYERS[0])) == pytest.approx(6.0, rel=0.02)
    assert judged(0.66, 4).decision.side == 0
    assert "2.00 times the best" in str(out_of_reach)
