"""Joining exposures and conversions, against a slow and obvious version and simulated truth."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from zib.cli import app
from zib.core.cluster import Machines
from zib.core.validate import InvalidParameterError
from zib.logs import join
from zib.logs.joining.attribute import Events, settle

DAY = 86_400.0
module = importlib.import_module("zib.logs.joining.join")


def naive(shown, bought, window, attribute, combine):
    """Return rewards by looping over everything."""
    events = {i: [] for i in shown.index}
    for _, sale in bought.iterrows():
        near = shown[
            (shown.user == sale.user)
            & (shown.time <= sale.time)
            & (shown.time >= sale.time - window)
        ].sort_values("time", kind="stable")
        if len(near):
            picked = {"last": near.index[-1:], "first": near.index[:1], "all": near.index}
            for i in picked[attribute]:
                events[i].append((sale.time, sale.amount))
    take = {"sum": sum, "first": lambda x: x[0], "last": lambda x: x[-1], "max": max}
    return [
        take[combine]([amount for _, amount in sorted(found, key=lambda e: e[0])]) if found else 0.0
        for found in events.values()
    ]


@pytest.mark.parametrize(
    ("attribute", "combine"),
    [("last", "sum"), ("first", "sum"), ("all", "max"), ("last", "first"), ("all", "last")],
)
def test_it_is_what_a_loop_over_everything_finds(attribute, combine, seed):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 25, 120)
    shown = pd.DataFrame({"user": users, "time": rng.integers(0, 400, 120) / 4.0})
    bought = pd.DataFrame(
        {
            "user": rng.integers(0, 30, 90),
            "time": np.round(rng.random(90) * 100, 2),
            "amount": rng.normal(5.0, 4.0, 90),
        }
    )
    joined = join(shown, bought, window=12.0, attribute=attribute, combine=combine, as_of=1e4)
    wanted = naive(shown, bought, 12.0, attribute, combine)
    np.testing.assert_allclose(joined.frame().reward, wanted, rtol=1e-12)
    if attribute != "all":
        parts = (joined.matched, joined.unknown, joined.early, joined.late)
        assert sum(part.number for part in parts) == 90
        assert math.isclose(sum(part.amount for part in parts), bought.amount.sum())
        outside = ~bought.user.isin(shown.user)
        assert joined.unknown.number == outside.sum()
        first = bought.user.map(shown.groupby("user").time.min())
        assert joined.early.number == (bought.time < first).sum()


def test_rows_of_one_conversion_are_put_together():
    def net(*rows):
        time, amount = zip(*rows)
        events = Events(np.zeros(len(rows), np.int64), np.array(time), np.array(amount))
        found = settle(events, np.zeros(len(rows), np.int64))
        counts = (found.duplicates, found.revisions, found.refunds)
        return float(found.events.amount[0]), float(found.events.time[0]), counts

    assert net((1.0, 50.0), (1.0, 50.0)) == (50.0, 1.0, (1, 0, 0))
    assert net((1.0, 50.0), (3.0, 50.0)) == (50.0, 1.0, (1, 0, 0))  # sent again later
    assert net((2.0, -20.0), (1.0, 50.0)) == (30.0, 1.0, (0, 0, 1))
    assert net((1.0, 50.0), (2.0, -20.0), (3.0, 50.0)) == (30.0, 1.0, (1, 0, 1))
    assert net((1.0, 50.0), (2.0, -20.0), (2.0, -20.0), (3.0, -5.0)) == (25.0, 1.0, (1, 0, 2))
    assert net((1.0, 50.0), (2.0, 0.0)) == (0.0, 1.0, (0, 1, 0))
    assert net((1.0, 50.0), (2.0, -20.0), (3.0, 40.0)) == (40.0, 1.0, (0, 1, 1))
    assert net((1.0, -5.0)) == (-5.0, 1.0, (0, 0, 1))


SHOWN = """exposure_id,variant,sent_at,age
e1,A,2024-05-01T10:00:00Z,31
e2,B,2024-05-01T10:00:00Z,44
e3,A,2024-05-02 12:00:00+02:00,27
e4,B,2024-05-20T10:00:00Z,61
"""
BOUGHT = """order_id,exposure_id,ordered_at,amount
o1,e1,2024-05-03 10:00:00,20
o1,e1,2024-05-03 10:00:00,20
o2,e1,2024-05-04 10:00:00,5
o3,e2,2024-05-09 10:00:00,99
o4,e9,2024-05-03 10:00:00,7
o5,e3,2024-05-01 10:00:00,8
o6,e3,2024-05-04 10:00:00,30
o6,,2024-06-04 10:00:00,-10
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "sent.csv").write_text(SHOWN)
    (tmp_path / "orders.csv").write_text(BOUGHT)
    return str(tmp_path / "sent.csv"), str(tmp_path / "orders.csv")


def test_two_files_from_the_command_line(files, tmp_path):
    out = tmp_path / "log.parquet"
    ran = CliRunner().invoke(app, ["join", *files, "--window", "7d", "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    frame = pq.read_table(out).to_pandas()
    assert frame.reward.tolist() == [25.0, 0.0, 20.0, 0.0]
    assert list(frame) == ["exposure_id", "variant", "sent_at", "age", "reward"]
    assert str(frame.sent_at[2]) == "2024-05-02 10:00:00+00:00"
    for words in (
        "conversions matched                    3   worth 45.00",
        "without exposure                     1   worth 7.00",
        "before the exposure                  1   worth 8.00",
        "after the window                     1   worth 99.00",
        "rows dropped as duplicates             1",
        "refunds                                1   worth -10.00",
        "68.8 % of what the exposed brought in came after the window",
        "Guessed: the files are joined on 'exposure_id'.",
        "zib advise",
    ):
        assert words in ran.output, ran.output
    assert not list(tmp_path.glob(".log*"))


def test_the_joined_log_is_ready_for_advice(files, tmp_path):
    joined = join(*files, window="7d", as_of="2024-05-10", out=tmp_path / "log.parquet")
    assert joined.open_rows == 0
    assert joined.exposures == 3  # e4 is later
    log = joined.log(context=["age"])
    assert log.arms == ("A", "B")
    np.testing.assert_allclose(log.reward, [25.0, 0.0, 30.0])  # the refund is not known yet
    assert log.time[0] == 1714557600.0
    assert (
        join(*files, window="7d", pending="leave-out")
        .frame()
        .equals(join(*files, window="7d").frame())
    )


def test_a_log_needs_an_arm():
    shown = pd.DataFrame({"visit": [1, 2], "when": [0.0, 1.0]})
    bought = pd.DataFrame({"visit": [2], "when": [3.0], "amount": [5.0]})
    joined = join(shown, bought, window=5.0, on="visit", time="when", conversion_time="when")
    with pytest.raises(InvalidParameterError, match="`arm` must name the column with what was"):
        joined.log()


def test_open_windows_are_left_out_with_and_without_conversion(files):
    joined = join(*files, window="7d", as_of="2024-05-08T11:00:00+01:00")
    assert (joined.open_rows, joined.open_converted, joined.rows) == (1, 1, 2)
    assert "still open: 1, of which 1 with a conversion; they are left out" in str(joined)


def test_time_zones(files, tmp_path):
    later = join(*files, window="7d", timezone="America/New_York")
    assert later.matched.number == 3  # orders are four hours later than in UTC
    text = BOUGHT.replace("2024-05-04 10:00:00,5", "2024-10-27 02:30:00,5")
    text = text.replace("2024-05-04 10:00:00,30", "2024-03-31 02:30:00,30")
    (tmp_path / "orders.csv").write_text(text)
    berlin = join(*files, window="7d", timezone="Europe/Berlin")
    words = str(berlin)
    assert "Of the times of the conversions, 1 occurred twice in Europe/Berlin" in words
    assert "Of the times of the conversions, 1 never occurred in Europe/Berlin" in words
    with pytest.raises(InvalidParameterError, match="`timezone` must be a name such as"):
        join(*files, window="7d", timezone="Europe/Entenhausen")


def simulated(rng, n, chances, scale=3.0, days=12.0, window=7.0):
    """Return two frames: exposures over some days, and exponential delays cut off at the window."""
    arm = rng.integers(0, len(chances), n)
    time = rng.random(n) * days
    pays = rng.random(n) < np.asarray(chances)[arm]
    delay = -scale * np.log1p(-rng.random(n) * -np.expm1(-window / scale))
    seen = pays & (time + delay <= days)
    amount = rng.gamma(3.0, 10.0, n)
    shown = pd.DataFrame({"id": np.arange(n), "arm": arm, "time": time * DAY})
    bought = pd.DataFrame(
        {"id": np.arange(n)[seen], "time": (time + delay)[seen] * DAY, "amount": amount[seen]}
    )
    return shown, bought


@pytest.mark.parametrize(
    "pending",
    [
        "thin",
        pytest.param("leave-out", marks=pytest.mark.slow),
        pytest.param("weight", marks=pytest.mark.slow),
    ],
)
def test_rates_are_unbiased(pending, seed):
    """The mean of 25 estimates of each chance is within 3.5 standard errors of the truth, and of
    r with the amounts as well: together an error probability of about 0.002 for each case."""
    rng = np.random.default_rng(seed)
    chances = np.array([0.02, 0.1])
    found = []
    for run in range(25):
        shown, bought = simulated(rng, 4_000, chances)
        joined = join(shown, bought, window="7d", as_of=12 * DAY, pending=pending, seed=run).frame()
        weight = joined.weight if pending == "weight" else 1.0
        joined = joined.assign(weight=weight, paid=(joined.reward != 0), r=joined.reward)
        total = joined.groupby("arm")[["weight", "paid", "r"]].sum()
        found.append([*(total.paid / total.weight), *(total.r / total.weight)])
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    truth = np.concatenate([chances, 30.0 * chances])
    assert (np.abs(found.mean(axis=0) - truth) < 3.5 * error).all(), (found.mean(axis=0), error)


@pytest.mark.slow
def test_arms_with_other_delays_get_curves_of_their_own(seed):
    """Each chance from all exposures is within 3.5 errors of the truth over 20 runs."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(20):
        fast = simulated(rng, 8_000, [0.05], scale=0.7)
        slow = simulated(rng, 8_000, [0.05], scale=6.0)
        for frame in slow:
            frame["id"] += 8_000
        slow[0]["arm"] = 1
        shown, bought = (pd.concat(both) for both in zip(fast, slow, strict=True))
        joined = join(shown, bought, window="7d", as_of=12 * DAY, pending="thin")
        assert "The delay differs between arms" in str(joined)
        rows = joined.frame()
        kept = rows.assign(paid=rows.reward != 0).groupby("arm").paid.mean()
        found.append([*(rates.chance for rates in joined.arms), *kept])
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - 0.05) < 3.5 * error).all(), (found.mean(axis=0), error)


def test_what_is_usually_done_is_far_off(seed):
    shown, bought = simulated(np.random.default_rng(seed), 40_000, [0.02])
    joined = join(shown, bought, window="7d", as_of=12 * DAY)
    (rates,) = joined.arms
    assert rates.chance == pytest.approx(0.02, rel=0.15)  # 600 conversions: three errors are 12 %
    events = rates.closed_converted + rates.pending_converted
    assert events / (rates.closed + rates.pending) < 0.85 * rates.chance  # open ones as zeros
    zeros = rates.closed - rates.closed_converted
    assert events / (events + zeros) > 1.4 * rates.chance  # as they arrive, zeros at the close


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": "7 moons"}, "`window` must be a length of time such as '7d'"),
        ({"window": -1}, r"`window` must lie in \(0, inf\)"),
        ({"attribute": "best"}, "`attribute` must be one of 'last', 'first', 'all'"),
        ({"combine": "mean"}, "`combine` must be one of 'sum'"),
        ({"pending": "zero"}, "`pending` must be one of 'leave-out', 'thin', 'weight'"),
        ({"pending": "thin"}, "`pending` must be 'leave-out': there are fewer than 5"),
        ({"on": "nobody"}, "has no column 'nobody'"),
        ({"on": ["a", "b", "c"]}, "`on` must be one name, or one for the exposures"),
        ({"reward": "age"}, "`reward` must be a name that no column of the exposures has"),
        ({"as_of": "soon"}, "`as_of` must be a time such as"),
        ({"amount": "order_id"}, "column `order_id` must hold numbers"),
        ({"conversion_time": "amount", "window": 5}, "must both hold dates or both numbers"),
        ({"out": "log.xlsx"}, "`out` must end with .parquet or .csv"),
        ({"prior": 3}, "`prior` must be a zib.stats.delay.DelayDistribution"),
    ],
)
def test_bad_arguments_are_refused(change, message, files):
    with pytest.raises(InvalidParameterError, match=message):
        join(*files, **{"window": "7d", **change})


def test_without_window_and_times():
    shown = pd.DataFrame({"id": ["a", "b"], "arm": [0, 1]})
    joined = join(shown, pd.DataFrame({"id": ["b", "b", "c"]}), window=None)
    assert joined.frame().reward.tolist() == [0.0, 2.0]
    assert "each conversion counts 1" in str(joined)
    with pytest.raises(InvalidParameterError, match="`time` must name the column with the times"):
        join(shown, pd.DataFrame({"id": ["b"]}), window="7d")


def test_keys_of_different_types_meet():
    shown = pd.DataFrame({"id": [1, 2, 3]})
    for ids in (["2", " 3 "], [2.0, 3.0], [2, 3], pd.array([2, 3], "Int64")):
        joined = join(shown, pd.DataFrame({"id": ids, "amount": [5.0, 6.0]}), window=None)
        assert joined.frame().reward.tolist() == [0.0, 5.0, 6.0]
        back = join(pd.DataFrame({"id": ids}), shown.assign(amount=[7, 8, 9]), window=None)
        assert back.frame().reward.tolist() == [8.0, 9.0]


def test_milliseconds_since_1970():
    shown = pd.DataFrame({"id": [1, 2], "time": [1_714_557_600_000, 1_714_557_600_000]})
    bought = pd.DataFrame({"id": [1, 2], "time": ["2024-05-01T11:00:00Z", "2024-05-09T11:00:00Z"]})
    joined = join(shown, bought, window="7d")
    assert joined.frame().reward.tolist() == [1.0, 0.0]
    assert "taken for milliseconds since 1970" in str(joined)


@pytest.fixture
def parts(monkeypatch, tmp_path, seed):
    """Two Parquet files, and workers in this process that get a thousand exposures at a time."""
    from contextlib import contextmanager

    from tests.datasets.test_pieces import Posted

    made = Posted()

    @contextmanager
    def machines(backend, *rest):
        yield made if backend == "dask" else Machines()

    monkeypatch.setattr(module, "machines", machines)
    monkeypatch.setattr("zib.core.cluster.require_distributed", lambda: None)
    monkeypatch.setattr(module, "PART", 1_000)
    shown, bought = simulated(np.random.default_rng(seed), 4_500, [0.05, 0.2])
    shown.to_parquet(tmp_path / "shown.parquet", row_group_size=700)
    bought.to_parquet(tmp_path / "bought.parquet")
    return tmp_path / "shown.parquet", tmp_path / "bought.parquet", made


@pytest.mark.parametrize(
    "pending",
    [
        "thin",
        pytest.param("leave-out", marks=pytest.mark.slow),
        pytest.param("weight", marks=pytest.mark.slow),
    ],
)
def test_workers_join_the_same_rows(parts, pending, tmp_path):
    *files, made = parts
    options = {"window": "7d", "as_of": 12 * DAY, "pending": pending, "seed": 3}
    here = join(*files, **options)
    there = join(*files, **options, backend="dask")
    assert made.parts >= 10
    assert there.frame().equals(here.frame())
    folder = join(*files, **options, out=tmp_path / "joined", backend="dask")
    assert len(list((tmp_path / "joined").iterdir())) == 5
    assert folder.frame().equals(here.frame())
    for found in (there, folder):
        assert str(found).rpartition("rows")[0] == str(here).rpartition("rows")[0]
        np.testing.assert_array_equal(found.delays.values, here.delays.values)
    assert not list(tmp_path.glob(".joined*"))
    with pytest.raises(InvalidParameterError, match="`out` must be a new or empty folder"):
        join(*files, **options, out=tmp_path / "joined")


@pytest.mark.slow
def test_a_cluster_joins_the_same_rows(tmp_path, seed):
    pytest.importorskip("distributed")
    shown, bought = simulated(np.random.default_rng(seed), 5_000, [0.05, 0.2])
    shown.to_parquet(tmp_path / "shown.parquet")
    bought.to_parquet(tmp_path / "bought.parquet")
    files = (tmp_path / "shown.parquet", tmp_path / "bought.parquet")
    options = {"window": "7d", "as_of": 12 * DAY, "pending": "thin"}
    there = join(*files, **options, backend="dask", workers=2)
    assert there.frame().equals(join(*files, **options).frame())
    by_url = join(*(file.as_uri() for file in files), **options, out=(tmp_path / "j").as_uri())
    assert by_url.frame().equals(there.frame())


def test_exports_as_people_have_them(tmp_path):
    (tmp_path / "sent.csv").write_text(
        "Kunde;Gruppe;Zeit\nk1;A;01.05.2024 12:30\nk2;B;13.05.2024 09:00\n", encoding="cp1252"
    )
    (tmp_path / "orders.csv").write_text(
        "Kunde;Zeit;Umsatz\nk1;02.05.2024 12:30;1.234,50 €\nk2;13.05.2024 09:30;9,99 €\n",
        encoding="cp1252",
    )
    joined = join(
        tmp_path / "sent.csv", tmp_path / "orders.csv", window="1d", on="Kunde", arm="Gruppe",
        time="Zeit", conversion_time="Zeit", amount="Umsatz", timezone="Europe/Berlin",
        as_of="2024-06-01",
    )  # fmt: skip
    frame = joined.frame()
    assert frame.reward.tolist() == [1234.5, 9.99]
    assert str(frame.Zeit[0]) == "2024-05-01 10:30:00+00:00"
