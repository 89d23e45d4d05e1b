"""The experiments themselves, on small scales, and the facts their verdicts rest on."""

import math

import numpy as np
import pytest
from tests.experiments.made import quick, small

import zib
from zib import theory
from zib.cases.loan import LoanMarket
from zib.core.rng import Role, stream
from zib.env import Gaussian, ZeroInflated
from zib.experiments import draw, fig1b, figS6, mab_study
from zib.experiments.fig2 import Figure2
from zib.experiments.harness import Scaled
from zib.experiments.record import Context

WORDS = fig1b.WORDS["ZI-UCB printed"]
CASE = fig1b.Case("Gaussian", ZeroInflated(Gaussian(2.0, 0.5), 0.3))


def test_sample_statistics(rng):
    sizes, runs = [50, 400], 3000
    samples = fig1b.simulate(CASE, sizes, runs, rng)
    for n, sample in zip(sizes, samples):
        reward = CASE.reward
        # Five standard errors each: error probability 6e-7 per check, six checks.
        assert abs(sample.paid.mean() / n - 0.3) < 5 * math.sqrt(0.21 / (n * runs))
        assert abs(sample.total.mean() / n - 0.6) < 5 * math.sqrt(reward.variance / (n * runs))
        second = reward.moment(2.0)
        spread = math.sqrt((reward.moment(4.0) - second**2) / (n * runs))
        assert abs(sample.squares.mean() / n - second) < 5 * spread
    assert (samples[1].paid >= samples[0].paid).all()


def test_bounds_of_one_sample():
    sample = fig1b.Sample(
        np.full(2, 100.0), np.array([30.0, 0.0]), np.array([60.0, 0.0]), np.array([125.0, 0.0])
    )
    bounds = {m.name: m.bound(sample, CASE) for m in fig1b.METHODS}
    level = math.log(2 / 0.05)
    product = (2 + 0.5 * math.sqrt(2 * level / 30)) * (0.3 + math.sqrt(level / 200))
    assert bounds["ZI given B, Hoeffding"][0] == pytest.approx(product)
    tau = CASE.reward.subgaussian_size
    plain = 0.6 + math.sqrt(2 * tau**2 * math.log(20) / 100)
    assert bounds["UCB true size (strong)"][0] == pytest.approx(plain)
    assert bounds["UCB estimated size"][0] == pytest.approx(plain)
    assert bounds["UCB component size"][0] == pytest.approx(
        0.6 + math.sqrt(0.5 * math.log(20) / 100)
    )
    variance = 1.25 - 0.36
    assert bounds["UCB variance size"][0] == pytest.approx(
        0.6 + math.sqrt(2 * variance * math.log(20) / 100)
    )
    assert (
        bounds["ZI-KL-UCB"][0]
        < bounds["ZI joint, proven"][0]
        < bounds["ZI-UCB"][0]
        < bounds["ZI-UCB printed"][0]
    )
    # nothing was paid: the zero-inflated bounds know nothing about mu
    for method in fig1b.METHODS:
        assert math.isinf(bounds[method.name][1]) == method.zero_inflated


def test_invalid_bounds_are_found_out():
    covered = np.array([950, 930, 900])
    measured = fig1b.Measured(CASE, fig1b.METHODS[0], (10, 20, 30), np.ones(3), covered, 1000, 0)
    # Binomial(1000, .95): 950 happens, 930 and 900 do not (chances .4 % and 3e-10)
    found = measured.validity()
    assert found.too_low == [20, 30]
    assert not found.holds
    assert found.word == "not valid, from n = 20 to 30"
    fine = measured._replace(covered=np.array([985, 990, 999])).validity()
    assert (fine.holds, fine.too_low, fine.word) == (True, [], "valid")
    assert measured._replace(sizes=(10,), covered=np.array([950])).validity().word == "undecided"


def test_a_bound_whose_condition_never_holds_is_not_called_valid(tmp_path):
    """At p = 0.02 the printed bound needs n ≥ 4·log(2/δ)/p² = 36 889; the grid ends at 8000."""
    rare = fig1b.Case("rare", ZeroInflated(Gaussian(4.0, 1.0), 0.02))
    samples = fig1b.simulate(rare, fig1b.SIZES, 200, np.random.default_rng(0))
    measured = [fig1b.measure(method, rare, samples) for method in fig1b.METHODS]
    printed = measured[0]
    assert printed.start == math.ceil(4 * math.log(40) / 0.02**2) == 36_889
    assert not printed.applies
    assert printed.validity().word == "does not apply on this grid (needs n ≥ 36889)"
    bounds = fig1b.Bounds((rare,), measured, {"rare": np.full(len(fig1b.SIZES), 0.1)})
    for verdict in list(fig1b.Figure1b(quick(tmp_path)).claims(bounds))[:2]:
        assert "does not apply on this grid for rare (needs n ≥ 36889" in verdict.words
        assert not any(WORDS in line for line in verdict.evidence)
    (table,) = fig1b.Figure1b(quick(tmp_path)).tables(bounds)
    assert {row[0]: row[-1] for row in table.rows}[WORDS] == "n ≥ 36889"


def test_sub_weibull_sizes():
    market = LoanMarket().history
    size = fig1b.subweibull_size(fig1b.Case("loan", market))
    law = market.law
    inside = law._expect(lambda x: np.exp(((x - law.mean) / size) ** 2))
    assert inside == pytest.approx(2.0, abs=1e-9)
    assert fig1b.subweibull_size(CASE) == pytest.approx(0.5 * math.sqrt(8 / 3))


def test_figure_1b_runs(tmp_path):
    told = []
    context = Context("quick", 1, None, tmp_path, lambda *a: told.append(a))
    record = small(fig1b.Figure1b, runs=Scaled(quick=500, paper=500)).run(context)
    assert (tmp_path / "fig1b.png").exists()
    assert len(record.tables) == 3
    assert len(record.verdicts) == 5
    by_claim = {verdict.claim: verdict for verdict in record.verdicts}
    # The plain bound with the size of X misses by far on the Gaussian arm, whatever the seed.
    assert "plain, size of X" in by_claim[next(iter(by_claim))].words
    assert told


@pytest.mark.parametrize(("mean", "sigma", "log_gap"), [(3.0, 1.0, 2.0), (10.0, 0.5, 8.0)])
def test_size_near_one_agrees_with_the_theory(mean, sigma, log_gap):
    prob = -math.expm1(-log_gap)
    want = float(theory.product_variance_proxy(mean, prob, sigma))
    assert figS6.tau2_near_one(mean, sigma, log_gap) == pytest.approx(want, rel=1e-6)


def test_derivatives_agree_with_differences():
    for mean, prob, sigma in [(1.0, 0.2, 1.0), (10.0, 0.9, 0.3), (0.5, 0.99, 2.0)]:
        by_prob, by_mean = (float(x) for x in figS6.gradient(*map(np.float64, (mean, prob, sigma))))
        h = 1e-5

        def tau2(m, p, s=sigma):
            return float(theory.product_variance_proxy(m, p, s))

        assert by_prob == pytest.approx(
            (tau2(mean, prob + h) - tau2(mean, prob - h)) / (2 * h), rel=1e-4, abs=1e-8
        )
        assert by_mean == pytest.approx(
            (tau2(mean + h, prob) - tau2(mean - h, prob)) / (2 * h), rel=1e-4, abs=1e-8
        )


def test_figure_s6(tmp_path):
    record = figS6.FigureS6.run(quick(tmp_path))
    # Mathematical facts, no chance involved.
    assert [v.status for v in record.verdicts] == ["holds", "partly", "fails", "fails", "fails"]
    assert {
        line.split(",")[0] for line in (tmp_path / "figS6.csv").read_text().splitlines()[1:]
    } == {*"abcde"}


@pytest.mark.slow
def test_study_runs_every_policy_in_every_family(tmp_path):
    figure = small(Figure2, horizon=300, replications=Scaled(quick=3, paper=3))
    record = figure.run(quick(tmp_path, 3))
    assert not record.interrupted
    assert [table.title.split(" p ")[0] for table in record.tables] == [
        "Gaussian",
        "Gaussian mixture",
        "Exponential",
    ]
    lines = (tmp_path / "fig2.csv").read_text().splitlines()
    assert lines[0].startswith("family,p_low,p_high,policy,round,regret,low,high")
    assert {s.source for s in record.settings} == {"paper", "ours", "fix"}
    labels = {line.split(",")[3] for line in lines[1:]}
    assert labels == {
        *mab_study.ZERO_INFLATED, *mab_study.BEYOND, mab_study.STRONG, *mab_study.BASELINES,
        *mab_study.OTHERS,
        mab_study.BOUND,
    }  # fmt: skip


@pytest.mark.slow
def test_study_keeps_finished_panels_when_interrupted(tmp_path, monkeypatch):
    real, calls = zib.simulate, []

    def simulate(*args, **kwargs):
        result = real(*args, **kwargs)
        calls.append(1)
        if len(calls) == 2:
            result.regret[0, 0] = np.nan
        return result

    monkeypatch.setattr(zib, "simulate", simulate)
    figure = small(Figure2, horizon=100, replications=Scaled(quick=2, paper=2))
    record = figure.run(quick(tmp_path, 3))
    assert record.interrupted
    assert "2 of 3 panels are missing" in record.notes[0]
    calls[:] = [1]
    with pytest.raises(KeyboardInterrupt):
        figure.run(quick(tmp_path, 3))


def test_checkpoints_contain_half_and_end():
    for horizon in (100, 300, 10_000, 75_000):
        rounds = draw.rounds_to_record(horizon)
        assert horizon // 2 in rounds
        assert rounds[-1] == horizon
        assert rounds[0] >= 1


@pytest.mark.parametrize("family", ["gaussian", "exponential"])
def test_yardstick_has_the_right_limit_and_start(family, seed):
    maker = mab_study.RandomMAB(family, n_arms=4)
    rounds = np.array([1, 10, 10**12, 10**15])
    curve = mab_study.asymptotic_bound(maker, seed, 3, rounds)
    instances = [maker.instance(stream(seed, Role.INSTANCE, r)) for r in range(3)]
    rate = np.mean(
        [
            theory.lower_bound(e.magnitudes, e.probs, maker.sigma)
            if family == "gaussian"
            else theory.lower_bound(e.magnitudes, e.probs, family=family)
            for e in instances
        ]
    )
    # slope per unit of log t, far out
    assert (curve[3] - curve[2]) / math.log(1000) == pytest.approx(rate, rel=1e-3)
    assert curve[0] == pytest.approx(np.mean([e.gaps.mean() for e in instances]))
    assert mab_study.asymptotic_bound(mab_study.RandomMAB("mixture"), seed, 1, rounds) is None
