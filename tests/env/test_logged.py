"""Bootstrap environments: means and laws against direct computations, blocks, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest

import zib
from zib import InvalidParameterError
from zib.core.entry import interpreted
from zib.env import BootstrapContextual, BootstrapMAB, Empirical, from_dict
from zib.logs import LoggedData, LogScan
from zib.testing import check_environment


@pytest.fixture(scope="module")
def log() -> LoggedData:
    rng = np.random.default_rng(5)
    n = 4_000
    cell = rng.integers(0, 2, n)
    shares = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    arm = np.array([rng.choice(3, p=shares[c]) for c in cell])
    prob = np.array([0.05, 0.10, 0.15])[arm] * (1 + cell)
    reward = np.where(rng.random(n) < prob, rng.lognormal(arm, 0.5), 0.0)
    return LoggedData.from_arrays(
        np.array(["a", "b", "c"])[arm],
        reward,
        propensity=shares[cell, arm],
        context=np.column_stack([cell, rng.normal(size=n)]),
        context_names=["cell", "noise"],
    )


def test_empirical_moments_are_weighted_sums() -> None:
    law = Empirical([2.0, 5.0, 2.0, -1.0], [1.0, 2.0, 3.0, 2.0])
    values, weights = np.array([2.0, 5.0, 2.0, -1.0]), np.array([1, 2, 3, 2]) / 8
    mean = float(values @ weights)
    assert law.mean == pytest.approx(mean, rel=1e-15)
    assert law.variance == pytest.approx(float(weights @ (values - mean) ** 2), rel=1e-14)
    assert law.moment(3) == pytest.approx(float(weights @ np.abs(values) ** 3), rel=1e-14)
    assert law.values == (-1.0, 2.0, 5.0)
    assert [law.quantile(q) for q in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)] == [-1, -1, 2, 2, 5, 5]
    grid = np.linspace(-6, 6, 400)
    assert all(law.log_mgf(s) <= law.subgaussian_size**2 * s * s / 2 + 1e-12 for s in grid)
    assert zib.env.law_from_dict(law.to_dict()) == law
    assert eval(repr(law)) == law


def test_empirical_draws_have_the_weights() -> None:
    """Chi-square at level 1e-6 over 4 values."""
    from scipy import stats

    law = Empirical([1.0, 2.0, 4.0, 8.0], [4.0, 3.0, 2.0, 1.0])
    draws = law.sample(np.random.default_rng(0), 100_000)
    seen = [int((draws == v).sum()) for v in law.values]
    assert stats.chisquare(seen, np.array([0.4, 0.3, 0.2, 0.1]) * 100_000).pvalue > 1e-6


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ([], None, "`values` must be a non-empty"),
        ([1.0, np.nan], None, "`values` must lie in"),
        ([1.0], [1.0, 2.0], r"`weights` must have one entry per value \(1\); got 2"),
        ([1.0, 2.0], [1.0, 0.0], r"`weights` must lie in \(0, inf\); got 0.0"),
    ],
)
def test_empirical_bad_input(values: list, weights: list | None, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        Empirical(values, weights)


def test_bootstrap_means_are_those_of_the_log(log: LoggedData) -> None:
    frame = log.to_frame()
    plain = BootstrapMAB(log, use_propensity=False)
    by_arm = frame.groupby("arm")["reward"]
    np.testing.assert_allclose(plain.arm_means, by_arm.mean(), rtol=1e-13)
    np.testing.assert_allclose(plain.probs, by_arm.apply(lambda r: (r != 0).mean()), rtol=1e-13)
    np.testing.assert_allclose(plain.variances, by_arm.var(ddof=0), rtol=1e-12)
    weighted = BootstrapMAB(log)
    expected = [
        np.average(part["reward"], weights=1 / part["propensity"])
        for _, part in frame.groupby("arm")
    ]
    np.testing.assert_allclose(weighted.arm_means, expected, rtol=1e-13)
    assert weighted.labels == ("a", "b", "c")
    check_environment(weighted)
    assert from_dict(weighted.to_dict()) == weighted


def test_propensities_remove_the_confounding() -> None:
    """Two arms alike, one played where everything pays more. Five standard errors: 6e-7."""
    rng = np.random.default_rng(1)
    n = 200_000
    rich = rng.random(n) < 0.5
    second = rng.random(n) < np.where(rich, 0.8, 0.2)
    reward = np.where(rng.random(n) < np.where(rich, 0.10, 0.02), 1.0, 0.0)
    propensity = np.where(second == rich, 0.8, 0.2)
    log = LoggedData.from_arrays(second.astype(int), reward, propensity=propensity)
    error = 5 * np.sqrt(0.06 / 100_000 * 4) * 2
    raw, weighted = (BootstrapMAB(log, use_propensity=use).arm_means for use in (False, True))
    assert raw[1] - raw[0] > 0.03
    assert abs(weighted[1] - weighted[0]) < error


def test_degenerate_logs() -> None:
    never = BootstrapMAB(LoggedData.from_arrays([0, 1, 1], [0.0, 0.0, 2.0]))
    assert never.arm_means.tolist() == [0.0, 1.0]
    assert never.sample(0, np.random.default_rng(0), 5).tolist() == [0.0] * 5
    always = BootstrapMAB(LoggedData.from_arrays([0, 0], [1.0, 3.0]))
    assert always.probs.tolist() == [1.0]
    with pytest.raises(InvalidParameterError, match="arm 'c' has no data in the log"):
        BootstrapMAB(LoggedData.from_arrays(["a"], [1.0], arms=["a", "c"]))
    scan = LogScan(pd.DataFrame({"a": [0], "r": [1.0]}), arm="a", reward="r")
    with pytest.raises(InvalidParameterError, match=r"`log` must be a LoggedData \(load a LogScan"):
        BootstrapMAB(scan)


def test_simulate_on_a_log(log: LoggedData) -> None:
    result = zib.simulate(
        [zib.mab.ZITS(horizon=300, sigma=2.0)], BootstrapMAB(log), horizon=300, replications=2,
        progress=False,
    )  # fmt: skip
    assert np.isfinite(result.regret).all()


def cell_means(log: LoggedData) -> np.ndarray:
    frame = log.to_frame()
    frame["w"] = 1 / frame["propensity"]
    frame["wr"] = frame["w"] * frame["reward"]
    sums = frame.groupby(["arm", "cell"])[["wr", "w"]].sum()
    return (sums["wr"] / sums["w"]).unstack().to_numpy()


def test_contextual_bootstrap(log: LoggedData) -> None:
    env = BootstrapContextual(log, cells=["cell"])
    np.testing.assert_allclose(env.cell_means, cell_means(log), rtol=1e-12)
    rng = np.random.default_rng(2)
    n = 60_000
    block = env.block(rng, n)
    assert env.n_features == (9, 9)
    for arm in range(3):
        x = block.z[:, 3 * arm : 3 * arm + 3, arm]
        assert (x[:, 0] == 1).all()
        assert not np.delete(block.z[:, :, arm], np.s_[3 * arm : 3 * arm + 3], axis=1).any()
        for cell in (0, 1):
            here = x[:, 1] == cell
            assert set(block.mean[here, arm]) == {env.cell_means[arm, cell]}
            paid = block.reward[here, arm]
            error = 5 * paid.std() / np.sqrt(here.sum())  # 6e-7 for each of six
            assert abs(paid.mean() - env.cell_means[arm, cell]) < error
    assert set(np.unique(block.reward)) <= set(log.reward)


def test_contextual_blocks_do_not_matter(log: LoggedData) -> None:
    for features in ("context", "disjoint", lambda x, k: np.outer(np.arange(k) + 1.0, x)):
        env = BootstrapContextual(log, cells=["cell"], features=features)
        whole = env.block(np.random.default_rng(3), 100)
        rng = np.random.default_rng(3)
        parts = [env.block(rng, n) for n in (1, 64, 35)]
        for name in whole._fields:
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(joined, getattr(whole, name))
    again = pickle.loads(pickle.dumps(BootstrapContextual(log, cells=["cell"])))
    assert repr(again) == repr(BootstrapContextual(log, cells=["cell"]))
    assert repr(again) != repr(
        BootstrapContextual(log.subset(np.arange(1, log.n_rows)), cells=["cell"])
    )


def test_cells_by_label_and_empty_cells(log: LoggedData) -> None:
    labels = np.where(log.context[:, 0] == 1, "rich", "poor")
    by_label = BootstrapContextual(log, cells=labels)
    np.testing.assert_allclose(
        by_label.cell_means, BootstrapContextual(log, cells=["cell"]).cell_means[:, :]
    )
    one_sided = log.subset((log.arm != 2) | (log.context[:, 0] == 1))
    with pytest.raises(
        InvalidParameterError, match=r"arm 'c' has no data in the cell cell=0; use coarser"
    ):
        BootstrapContextual(one_sided, cells=["cell"])
    filled = BootstrapContextual(one_sided, cells=["cell"], empty="arm")
    assert filled.cell_means[2, 0] == filled.cell_means[2, 1]


def test_contextual_bad_input(log: LoggedData) -> None:
    with pytest.raises(InvalidParameterError, match="columns take 4000 different values together"):
        BootstrapContextual(log)
    with pytest.raises(InvalidParameterError, match="`cells` must name columns of the context"):
        BootstrapContextual(log, cells=["risk"])
    with pytest.raises(InvalidParameterError, match="`features` must be one of 'context', 'dis"):
        BootstrapContextual(log, cells=["cell"], features="shared")
    with pytest.raises(
        InvalidParameterError, match=r"`features` must return one row per arm \(3\)"
    ):
        BootstrapContextual(log, cells=["cell"], features=lambda x, k: x)
    with pytest.raises(InvalidParameterError, match="use BootstrapMAB"):
        BootstrapContextual(LoggedData.from_arrays([0], [1.0]))


def test_a_contextual_policy_learns_on_a_log(log: LoggedData) -> None:
    env = BootstrapContextual(log, cells=["cell"], features="context")
    policies = {"joint": zib.contextual.Disjoint(spec=zib.contextual.JointUCB(), n_arms=3)}
    with interpreted():
        result = zib.simulate(
            policies, env, horizon=60, replications=1, progress=False, backend="serial"
        )
    assert np.isfinite(result.regret).all()
