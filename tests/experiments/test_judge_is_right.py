"""How often the judge is wrong, on samples drawn from simulated regrets whose truth is known.

Samples of N runs are drawn with replacement from 300 runs of each policy, so the truth is the mean
of those 300. Seeds are fixed; with 500 samples a share of 3 % has a standard error of 0.8 %.
"""

import itertools

import numpy as np
import pytest
from tests.experiments import regrets
from tests.experiments.made import results

from zib.experiments import judge
from zib.experiments.record import Verdict
from zib.stats import intervals

SAMPLES = 500
RUNS = regrets.load()
LABELS = regrets.LABELS
ZI_TS, MOTS = LABELS.index("ZI-TS"), LABELS.index("MOTS")
SIZES = (
    pytest.param(3, marks=pytest.mark.slow), 6, 8, 25, pytest.param(50, marks=pytest.mark.slow),
)  # fmt: skip


def drawn(name, n):
    """Return samples of runs, (policy, n, samples, 2), the same runs for every policy."""
    rng = np.random.default_rng(n)
    everything = RUNS[name]
    return everything[:, rng.integers(0, everything.shape[1], (n, SAMPLES))]


def decisions(a, b, worst, factor=1.0):
    least, largest = a.mean(axis=0) - factor * worst, worst - factor * b.mean(axis=0)
    return judge.side_of_zero(a - factor * b, least, largest, level=0.95)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_decided_comparisons_are_right(name, n):
    truth = RUNS[name][:, :, -1].mean(axis=1)
    final = drawn(name, n)[..., -1]
    worst = final.max(axis=(0, 1))
    right = []
    for i, j in itertools.combinations(range(len(LABELS)), 2):
        side = decisions(final[i], final[j], worst)
        expected = np.sign(truth[i] - truth[j])
        assert np.mean(side == -expected) <= 0.05, (LABELS[i], LABELS[j])
        right.append(np.mean(side == expected))
        # the hardest question: more or less than the true ratio? Each answer may be given by
        # chance, and is then wrong if the truth is a hair on the other side
        border = decisions(final[i], final[j], worst, truth[i] / truth[j])
        assert np.mean(border < 0) <= 0.06, (LABELS[i], LABELS[j])
        assert np.mean(border > 0) <= 0.06, (LABELS[i], LABELS[j])
    # a judge that never decides would be right as well
    assert np.mean(right) > {3: 0.1, 6: 0.2, 8: 0.2, 25: 0.45, 50: 0.6}[n]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_decided_growth_is_right(name, n):
    at_half, at_end = np.moveaxis(RUNS[name].mean(axis=1), -1, 0)
    sample = drawn(name, n)
    most = sample[..., -1].max(axis=(0, 1))
    for i, label in enumerate(LABELS):
        for border in (2**judge.LINEAR, at_end[i] / at_half[i]):
            values = sample[..., 1] - border * sample[..., 0]
            ends = values.min(axis=(0, 1)), most * (1 - border / 2)
            side = judge.side_of_zero(values[i], *ends, level=0.95)
            expected = np.sign(at_end[i] - border * at_half[i])
            if border == 2**judge.LINEAR:
                assert np.mean(side == -expected) <= 0.05, label
            else:
                assert max(np.mean(side < 0), np.mean(side > 0)) <= 0.06, label


def test_intervals_alone_are_wrong():
    """What the judge adds: a run that goes wrong once in twenty is missed by six runs."""
    name = regrets.PANELS[0]
    truth = RUNS[name][:, :, -1].mean(axis=1)
    assert truth[ZI_TS] < truth[MOTS]
    final = drawn(name, 6)[..., -1]
    apart = final[ZI_TS] - final[MOTS]
    for interval in (intervals.mean, intervals.skewed_mean):
        assert np.mean(interval(apart).low > 0.0) > 0.2


def test_a_comparison_follows_the_rule():
    name = regrets.PANELS[0]
    runs = RUNS[name][:, :8]
    result = results(dict.fromkeys(LABELS, np.sqrt), rounds=[50, 100], replications=8)
    result.regret = runs
    worst = runs[..., -1].max()
    for i, j in itertools.combinations(range(len(LABELS)), 2):
        found = judge.compare("x", result, LABELS[i], LABELS[j])
        assert found.decision.side == decisions(runs[i, :, -1], runs[j, :, -1], worst)
        assert found.ratio == pytest.approx(runs[i, :, -1].mean() / runs[j, :, -1].mean())
        assert (found.lower, found.higher) == (found.decision.side < 0, found.decision.side > 0)


def test_comparisons_of_an_item_share_the_error():
    levels = []

    def claims():
        for _ in range(10):
            found = judge.decide_mean([1.0, 2.0, 4.0], (0.0, 0.0))
            levels.append(found.level)
            yield Verdict("c", "open", "")

    assert len(judge.judged(claims)) == 10
    assert levels[:10] == [0.95] * 10  # counted
    assert levels[10:] == pytest.approx([0.995] * 10)  # decided
    assert judge.decide_mean([1.0, 2.0, 4.0], (0.0, 0.0)).level == 0.95


def test_the_best_of_several_is_judged_on_other_runs():
    """Nine policies with one law, best of three against best of six: wrong in at most 5 %.

    Chosen and judged on the same runs, the best of six would be called lower far too often.
    """
    rng = np.random.default_rng(0)
    labels = tuple("abcdefghi")
    wrong = 0
    for _ in range(300):
        result = results(dict.fromkeys(labels, np.sqrt), rounds=[50, 100], replications=50)
        result.regret = rng.lognormal(0.0, 1.0, (9, 50, 2))
        best = [judge.lowest(result, part) for part in (labels[:3], labels[3:])]
        wrong += judge.compare("x", result, *best, chosen=True).decision.side != 0
        assert judge.compare("x", result, *best, chosen=True).n == 25
    assert wrong <= 15


def test_shares_are_decided_by_the_exact_interval():
    from scipy.stats import binomtest

    for k in range(25, 56, 3):
        exact = binomtest(k, 100, 0.4).proportion_ci(0.95)
        expected = -1 if exact.high < 0.4 else int(exact.low > 0.4)
        assert judge.decide_share(k, 100, 0.4).side == expected
