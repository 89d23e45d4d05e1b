"""Recommendation, program, simulation, page; peculiar logs; real data."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import zib
from tests.datasets.data import KARLAN_LIST, data_file
from zib.logs import LoggedData, LogScan
from zib.logs.advise import Advice, advise


def frame_of(
    n: int = 3_000, seed: int = 5, *, scale: float = 1.0, law: str = "gaussian"
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 3, n)
    paid = rng.random(n) < np.array([0.05, 0.1, 0.02])[arm]
    size = {
        "gaussian": lambda: rng.normal(5.0, 1.0, n),
        "exponential": lambda: rng.exponential(3.0, n),
        "pareto": lambda: 1.0 + rng.pareto(1.5, n),
        "signed": lambda: rng.normal(0.5, 1.0, n),
    }[law]()
    return pd.DataFrame(
        {
            "ad": np.array(["a", "b", "c"])[arm],
            "spent": np.where(paid, size, 0.0) * scale,
            "p": 1 / 3,
        }
    )


def log_of(frame: pd.DataFrame, **options: Any) -> LoggedData:
    return LoggedData.from_frame(frame, arm="ad", reward="spent", **options)


def quick(log: Any, **options: Any) -> Advice:
    return advise(log, **{"simulate": False, **options})


# -------------------------------------------------------------------------------- recommendation


def alternative(advice: Advice, name: str) -> Any:
    """Return the alternative policy of this name, made by the code that the page shows."""
    codes = [other.code for other in advice.recommendation.alternatives]
    return eval(next(code for code in codes if f".{name}(" in code), {"zib": zib})


def test_without_a_simulation_the_default_is_recommended() -> None:
    frame = frame_of()
    advice = quick(log_of(frame, propensity="p"), horizon=5_000)
    assert advice.recommendation.spec == zib.mab.ZIAdaptive()
    spec = alternative(advice, "ZITS")
    assert spec.horizon == 5_000
    paid = frame[frame["spent"] != 0]
    within = paid["spent"] - paid.groupby("ad")["spent"].transform("mean")
    expected = np.sqrt((within**2).sum() / (len(paid) - 3))
    assert spec.sigma == pytest.approx(expected, rel=1e-3)  # four digits are shown
    assert advice.randomised == "yes"
    assert advice.ranking[0].label == "b"
    assert "Gaussian" in advice.law.words
    assert str(advice).count("\n") > 20


def test_exponential_rewards_have_policies_of_their_own() -> None:
    advice = quick(log_of(frame_of(20_000, law="exponential")))
    assert alternative(advice, "ZIExponentialTS") == zib.mab.ZIExponentialTS()
    guarded = advice.recommendation.alternatives[-1].code
    found = re.search(r"SubExponential\(size=([0-9.]+)\)", guarded)
    assert found is not None
    mean = advice.overall.mu.value
    assert float(found[1]) == pytest.approx(
        1.43207 * mean, rel=1e-3
    )  # −log(1 − u) − u = ½ at 1/1.43207


def test_an_infinite_variance_calls_for_trimmed_means() -> None:
    frame = frame_of(60_000, law="pareto")
    advice = quick(log_of(frame))
    spec = alternative(advice, "ZIHeavyUCB")
    assert 0.0 < spec.epsilon < 0.5
    paid = frame[frame["spent"] != 0]
    moments = (paid["spent"] ** (1 + spec.epsilon)).groupby(paid["ad"]).mean()
    assert spec.moment == pytest.approx(moments.max(), rel=1e-3)


@pytest.mark.parametrize("scale", [1e9, 1e-9])
def test_units_do_not_change_the_advice(scale: float) -> None:
    plain, other = quick(log_of(frame_of())), quick(log_of(frame_of(scale=scale)))
    unit = other.recommendation.unit
    for name in ("ZITS", "NormalTS"):
        sigma = alternative(other, name).sigma
        assert sigma * unit == pytest.approx(alternative(plain, name).sigma * scale, rel=2e-3)
        assert 0.01 < sigma < 100
    assert other.overall.r.high == pytest.approx(plain.overall.r.high * scale)
    assert other.gain is not None
    assert plain.gain is not None
    assert other.gain.ratio == pytest.approx(plain.gain.ratio, rel=1e-6)


def test_the_gain_is_the_ratio_of_the_bounds() -> None:
    advice = quick(log_of(frame_of(30_000)), horizon=10_000)
    gain, whole = advice.gain, advice.overall
    assert gain is not None
    n, p, mu = 10_000.0, whole.p.value, whole.mu.value
    delta = 4 / 10_000**2
    sigma = advice.recommendation.parameters[0].estimate.value
    tau = np.sqrt(zib.theory.product_variance_proxy(mu, p, sigma))
    assert gain.plain_radius == pytest.approx(tau * np.sqrt(2 * np.log(2 / delta) / n), rel=1e-9)
    upper = mu + sigma * np.sqrt(2 * np.log(2 / delta) / (n * p))
    split = upper * zib.theory.kl_upper(p, n, np.log(2 / delta)) - mu * p
    assert gain.ratio == pytest.approx(gain.plain_radius / split, rel=1e-9)
    assert gain.joint_radius < gain.split_radius < gain.plain_radius < gain.range_radius


def context_frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = 4_000
    age, arm = rng.normal(40.0, 10.0, n), rng.integers(0, 2, n)
    eta = -1.0 + np.where(arm == 1, 1.0, -1.0) * (age - 40.0) / 10.0
    paid = rng.random(n) < 1 / (1 + np.exp(-eta))
    return pd.DataFrame(
        {
            "ad": np.array(["old", "new"])[arm],
            "spent": np.where(paid, rng.normal(8.0, 1.0, n), 0.0),
            "age": age,
            "town": rng.choice(["x", "y"], n),
        }
    )


# ---------------------------------------------------------------------------------------- program


def run_program(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "policy.py", "exec"), space)
    return space


@pytest.mark.parametrize("known", [True, False])
def test_the_program_runs_as_it_stands(known: bool, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    frame = frame_of(4_000)
    frame.to_csv(path, index=False)
    names = {"arm": "ad", "reward": "spent", "propensity": "p" if known else None}
    log = LogScan(path, **names)
    advice = quick(log, horizon=50, source={"path": path, **names})
    space = run_program(advice.recommendation.snippet)
    bandit = space["bandit"]
    assert type(bandit.spec) is type(advice.recommendation.spec)
    pulls = sum(bandit.pulls.values())
    assert pulls == 50 + (4_000 if known else 0)
    for name, value in advice.recommendation.spec.parameters().items():
        if name != "horizon":
            assert bandit.spec.parameters()[name] == value


@pytest.mark.parametrize("kind", ["zeros", "constant", "full", "huge"])
def test_programs_of_peculiar_logs_run(kind: str, tmp_path: Path) -> None:
    frame = frame_of(1_000)
    if kind == "zeros":
        frame["spent"] = 0.0
    elif kind == "constant":
        frame["spent"] = np.where(frame["spent"] != 0, 12.5, 0.0)
    elif kind == "full":
        frame["spent"] = frame["spent"] + 1.0
    else:
        frame["spent"] *= 3e9
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = {"path": tmp_path / "log.csv", "arm": "ad", "reward": "spent", "propensity": "p"}
    advice = quick(log_of(frame, propensity="p"), horizon=30, source=source)
    assert sum(run_program(advice.recommendation.snippet)["bandit"].pulls.values()) == 1_030


def context_advice(folder: Path) -> Advice:
    path = folder / "log.parquet"
    context_frame().to_parquet(path)
    names = {"arm": "ad", "reward": "spent", "context": ["age", "town"]}
    return quick(LoggedData.read(path, **names), horizon=40, source={"path": path, **names})


def test_where_context_matters_it_is_used(tmp_path: Path) -> None:
    advice = context_advice(tmp_path)
    assert advice.recommendation.contextual
    assert advice.context is not None
    assert advice.context.matters
    assert "zib.ContextualBandit(" in advice.recommendation.snippet


@pytest.mark.slow
def test_where_context_matters_the_program_uses_it(tmp_path: Path) -> None:
    advice = context_advice(tmp_path)
    bandit = run_program(advice.recommendation.snippet)["bandit"]
    assert bandit.n_updates == 4_040
    assert bandit.spec == advice.recommendation.spec
    z = np.array([[1.0, 1.5, 0.0, 0.0]] * 2)
    found = bandit.predict(z)
    assert found.p[list(bandit.arms).index("new")] > 0.5


def test_without_effect_the_context_is_not_used() -> None:
    frame = context_frame()
    frame["age"] = np.random.default_rng(0).permutation(frame["age"])
    advice = quick(log_of(frame, context=["age", "town"]))
    assert not advice.recommendation.contextual


# ------------------------------------------------------------------------------------- simulation


def test_a_policy_that_looked_at_the_context_earns_the_average_of_the_log() -> None:
    frame = frame_of()
    frame["p"] = np.random.default_rng(0).uniform(0.2, 0.9, len(frame))
    advice = advise(log_of(frame, propensity="p"), horizon=500, replications=2)
    assert advice.randomised == "no"
    assert advice.simulation is not None
    last = next(row for row in advice.simulation.earned if row.label == "as in the log")
    assert last.total.value == pytest.approx(500 * frame["spent"].mean())
    assert last.total.high == pytest.approx(500 * advice.overall.r.high)
    assert any("inverse propensity" in note for note in advice.notes)


# ----------------------------------------------------------------------------------- peculiar logs


def test_an_arm_without_data() -> None:
    advice = quick(log_of(frame_of(), arms=["a", "b", "c", "d"]))
    assert advice.ranking[-1].label == "d"
    assert "Arm 'd' has no data; nothing can be said about it." in advice.notes
    assert np.isnan(advice.arms[3].p.value)
    assert "d" in advice.table()


def test_all_zeros() -> None:
    advice = advise(LoggedData.from_arrays(["a", "b"] * 500, np.zeros(1_000)))
    assert "All rewards are zero." in advice.notes
    high = 1 - 0.025 ** (1 / 1_000)
    assert advice.overall.p.high == pytest.approx(high)
    text = " ".join(advice.recommendation.reasons)
    assert f"{int(np.ceil(10 / high))} rounds" in text
    assert advice.recommendation.spec == zib.mab.EpsilonGreedy(epsilon=1.0)
    assert advice.simulation is None
    assert advice.gain is None


def test_an_arm_that_never_paid_is_bounded_by_the_magnitudes_of_the_others() -> None:
    frame = frame_of()
    frame.loc[frame["ad"] == "c", "spent"] = 0.0
    advice = quick(log_of(frame))
    silent = advice.arms[2]
    n = int((frame["ad"] == "c").sum())
    assert silent.p.high == pytest.approx(1 - 0.025 ** (1 / n))
    assert (silent.r.low, silent.r.value) == (0.0, 0.0)
    assert silent.r.high == pytest.approx(silent.p.high * advice.overall.mu.high)
    assert "rule of three" in silent.note


def test_few_rewards_borrow_the_spread_of_the_others() -> None:
    frame = frame_of()
    paid = frame.index[(frame["ad"] == "c") & (frame["spent"] != 0)]
    frame.loc[paid[4:], "spent"] = 0.0
    advice = quick(log_of(frame))
    few = advice.arms[2]
    sigma = advice.recommendation.parameters[0].estimate.value
    assert few.nonzero == 4
    assert few.mu.high - few.mu.value == pytest.approx(1.959964 * sigma / 2)
    assert few.r.high == pytest.approx(
        zib.theory.joint_kl_upper(
            few.rows, 4, 4 * few.mu.value, sigma=sigma, level=1.959964**2 / 2
        ),
        rel=1e-5,
    )
    assert any("fewer than 10 non-zero rewards" in note for note in advice.notes)


def test_no_zeros() -> None:
    rng = np.random.default_rng(0)
    advice = quick(LoggedData.from_arrays(rng.integers(0, 2, 500), rng.normal(9.0, 1.0, 500)))
    assert "No reward is zero: this log is not zero-inflated." in advice.notes
    assert any("plain policies do as well" in text for text in advice.recommendation.reasons)
    assert alternative(advice, "NormalTS").sigma == pytest.approx(1.0, rel=0.1)


def test_a_single_arm() -> None:
    frame = frame_of()
    frame["ad"] = "only"
    advice = advise(log_of(frame))
    assert "single arm" in advice.recommendation.reasons[0]
    assert advice.simulation is None
    assert any("Nothing was simulated" in note for note in advice.notes)


def test_equal_rewards() -> None:
    frame = frame_of()
    frame["spent"] = np.where(frame["spent"] != 0, 12.5, 0.0)
    advice = quick(log_of(frame))
    assert alternative(advice, "BetaTS") == zib.mab.BetaTS(scale=12.5)
    arm = advice.arms[1]
    assert (arm.mu.low, arm.mu.high) == (12.5, 12.5)
    assert (arm.r.low, arm.r.high) == pytest.approx((12.5 * arm.p.low, 12.5 * arm.p.high))
    assert arm.occurrence_share == 1.0


def test_negative_rewards() -> None:
    frame = frame_of(law="signed")
    advice = quick(log_of(frame))
    assert any("are negative" in note for note in advice.notes)
    frame["spent"] = -frame["spent"].abs()
    losses = quick(log_of(frame))
    assert losses.law.sign == -1
    assert losses.overall.r.value < 0


def test_thousands_of_arms_show_the_first_and_the_last() -> None:
    rng = np.random.default_rng(0)
    arm = np.concatenate([np.arange(3_000), rng.integers(0, 3_000, 27_000)])
    reward = np.where(rng.random(30_000) < 0.1, rng.normal(5.0, 1.0, 30_000), 0.0)
    advice = quick(LoggedData.from_arrays(arm, reward))
    lines = advice.table().splitlines()
    assert len(lines) == 1 + 12 + 1 + 1
    assert any("2988 more" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 1}, r"`horizon` must lie in \[2, inf\]; got 1"),
        ({"level": 1.0}, r"`level` must lie in \(0, 1\); got 1.0"),
        ({"worth": -0.1}, r"`worth` must lie in \[0, inf\); got -0.1"),
        ({"replications": 1}, r"`replications` must lie in \[2, inf\]; got 1"),
        ({"seed": -1}, r"`seed` must lie in \[0, inf\]; got -1"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=message):
        advise(log_of(frame_of(50)), **options)


def test_something_that_is_not_a_log() -> None:
    with pytest.raises(zib.InvalidParameterError, match="`log` must be a LoggedData or a LogScan"):
        advise(frame_of(50))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- page


def test_writing_leaves_a_whole_page(tmp_path: Path) -> None:
    advice = advise(log_of(frame_of(), propensity="p"), horizon=200, replications=2)
    page = advice.write(tmp_path / "out" / "advice")
    names = {path.name for path in page.parent.iterdir()}
    figures = {"differences", "arms", "magnitudes", "quantiles", "earnings"}
    assert names == {"advice.html", "advice.json", "policy.py"} | {
        f"{stem}.{end}" for stem in figures for end in ("png", "svg", "csv")
    }
    assert [p.name for p in page.parent.parent.iterdir()] == ["advice"]  # no drafts left behind
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 5
    linked = set(re.findall(r'href="([^"#]+)"', text))
    assert linked <= names
    assert not re.search(r'(src|href)="https?:', text)
    data = json.loads((page.parent / "advice.json").read_text(encoding="utf-8"))
    assert list(data)[:2] == ["format", "verdict"]
    assert data["verdict"]["words"] == advice.verdict.words
    assert str(advice).startswith(advice.verdict.words)
    assert data["overall"]["r"]["value"] == pytest.approx(advice.overall.r.value)
    assert data["recommendation"]["snippet"] == advice.recommendation.snippet
    assert advice.write(page.parent) == page  # again, over the old files
    assert {path.name for path in page.parent.iterdir()} == names


@pytest.mark.slow
def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = quick(log_of(frame_of(500)))
    page = advice.write(tmp_path / "advice")
    before = {path.name: path.read_bytes() for path in page.parent.iterdir()}

    def fail(*_: Any) -> str:
        raise OSError("disk full")

    monkeypatch.setattr("zib.logs.advise.page.render", fail)
    with pytest.raises(OSError, match="disk full"):
        quick(log_of(frame_of(600))).write(tmp_path / "advice")
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["advice"]


@pytest.mark.parametrize("kind", ["zeros", "one", "constant", "full", "empty arm"])
def test_pages_of_peculiar_logs(kind: str, tmp_path: Path) -> None:
    frame, options = frame_of(300), {}
    if kind == "zeros":
        frame["spent"] = 0.0
    elif kind == "one":
        frame = frame[:1]
    elif kind == "constant":
        frame["spent"] = np.where(frame["spent"] != 0, 12.5, 0.0)
    elif kind == "full":
        frame["spent"] = frame["spent"] + 1.0
    else:
        options = {"arms": ["a", "b", "c", "<d & e>"]}
    page = quick(log_of(frame, **options)).write(tmp_path / "advice")
    text = page.read_text(encoding="utf-8")
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower().split()
    assert "<d & e>" not in text


# -------------------------------------------------------------------------------------- real data


def test_donations_of_the_matching_experiment() -> None:
    """Karlan and List (2007): donations by treatment, against a direct group-by."""
    frame = pd.read_csv(data_file(KARLAN_LIST)).dropna(subset=["out_amountgive"])
    ratio = 1 + frame["treat_ratio2"] + 2 * frame["treat_ratio3"]
    frame["arm"] = np.where(frame["treatment"] == 0, "control", "match " + ratio.astype(str))
    frame["chance"] = np.where(frame["treatment"] == 0, 1 / 3, 2 / 9)
    log = LoggedData.from_frame(frame, arm="arm", reward="out_amountgive", propensity="chance")
    advice = quick(log)
    assert advice.randomised == "yes"
    for arm in advice.arms:
        own = frame.loc[frame["arm"] == arm.label, "out_amountgive"]
        paid = own[own != 0]
        assert arm.p.value == pytest.approx((own != 0).mean(), rel=1e-12)
        assert arm.mu.value == pytest.approx(paid.mean(), rel=1e-12)
        assert arm.r.value == pytest.approx(own.mean(), rel=1e-12)
        assert arm.weighted is not None
        assert arm.weighted.r.value == pytest.approx(own.mean(), rel=1e-10)
    assert advice.ranking[0].label.startswith("match")
    assert advice.ranking[-1].label == "control"
    assert 0.97 < advice.overall.zero_share < 0.985
    assert advice.law.points  # donations are round sums
    assert advice.law.best is not None
    assert advice.law.best.name == "log-normal"
    assert advice.recommendation.spec == zib.mab.ZIAdaptive()


@pytest.mark.parametrize("apart", [False, True])
def test_whether_arms_may_share_magnitudes_is_said(apart: bool) -> None:
    """Two arms with 1,500 rewards each, of one mean or 20 % apart: twelve standard errors."""
    rng = np.random.default_rng(3)
    arm = np.repeat([0, 1], 5_000)
    size = rng.normal(np.where(apart & (arm == 1), 6.0, 5.0), 1.0)
    log = LoggedData.from_arrays(arm, np.where(rng.random(10_000) < 0.3, size, 0.0))
    said = " ".join(advise(log, simulate=False).notes)
    assert ("do not let them share magnitudes" in said) == apart
    assert ('magnitudes="shared"' in said) == (not apart)
