import dataclasses
import hashlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.datasets.data import KARLAN_LIST, KARLAN_ZINMAN, data_file
from zib import datasets
from zib.logs import LogError, LoggedData, catalogue, public
from zib.logs.public import karlan_zinman
from zib.logs.public.cprm import CUTS, loan_price, monthly_prime, price_class


def kz_frame(n: int = 6_000) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    took = (rng.random(n) < 0.05).astype(np.int8)
    offer = rng.choice(np.arange(3.25, 12.0, 0.25), n)
    return pd.DataFrame(
        {
            "offer4": offer,
            "final4": np.where(rng.random(n) < 0.6, offer, 3.0),
            "risk": rng.choice(["LOW", "MEDIUM", "HIGH"], n, p=[0.1, 0.1, 0.8]),
            "wave": rng.choice([1, 2, 3], n).astype(np.int8),
            "normrate_less": (rng.random(n) < 0.9).astype(np.int8),
            "tookup": took,
            "grossinterest": (took * offer * 40.0).astype(np.float32),
            "female": rng.integers(0, 2, n),
            "trcount": np.where(rng.random(n) < 0.01, np.nan, 2.0),
        }
    )


def kl_frame(stata: bool = False, n: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(12)
    arm = rng.integers(0, 4, n)
    frame = pd.DataFrame(
        {
            "treatment": (arm > 0).astype(int),
            "treat_ratio2": (arm == 2).astype(int),
            "treat_ratio3": (arm == 3).astype(int),
            "out_amountgive": np.where(rng.random(n) < 0.05, 25.0, 0.0),
            "female": np.where(rng.random(n) < 0.03, -999, 1),
            "hpa": rng.uniform(10, 90, n),
        }
    )
    frame.loc[[4, 17], "out_amountgive"] = np.nan
    if stata:
        frame = frame.rename(
            columns={
                "treat_ratio2": "ratio2",
                "treat_ratio3": "ratio3",
                "out_amountgive": "amount",
            }
        )
    return frame


def cprm_frame(n: int = 2_000) -> pd.DataFrame:
    rng = np.random.default_rng(13)
    amount, term = rng.uniform(8e3, 40e3, n), rng.choice([36, 48, 60, 72], n)
    rate = rng.uniform(0.03, 0.12, n) / 12
    return pd.DataFrame(
        {
            "Tier": rng.integers(1, 5, n),
            "Primary_FICO": rng.integers(600, 850, n),
            "Term": term,
            "Amount_Approved": amount,
            "onemonth": rng.uniform(1.0, 2.2, n),
            "Competition_rate": rng.uniform(3, 7, n),
            "mp": amount * rate / (1 - (1 + rate) ** -term),
            "apply": (rng.random(n) < 0.22).astype(int),
        }
    )


# The catalogue


OPTIONAL = ("sha256", "file_name", "other_columns", "rows_fixed", "frame", "look")


def test_every_entry_is_complete() -> None:
    assert datasets.names() == ("cprm", "karlan_list", "karlan_zinman", "randhie")
    for name in datasets.names():
        entry = datasets.info(name)
        for field in dataclasses.fields(entry):
            if field.name not in (
                "sha256",
                "file_name",
                "other_columns",
                "rows_fixed",
                "frame",
                "look",
            ):
                assert getattr(entry, field.name), (name, field.name)
        text = datasets.info_text(name)
        assert f"zib.datasets.load_{name}(" in text
        assert hasattr(datasets, f"load_{name}")
        assert max(map(len, text.splitlines())) <= 96
    rows = datasets.catalogue_rows()
    assert [row[0] for row in rows] == ["name", *datasets.names()]
    assert {len(row) for row in rows} == {4}


def test_a_file_is_all_that_a_data_set_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coins.py").write_text(
        """
import pandas as pd
from zib.logs import LoggedData
from zib.logs.catalogue import DataSet

__all__ = ["load_coins"]

def frame_coins():
    return pd.DataFrame({"coin": ["a", "b"] * 5, "won": [0, 1] * 5})

ENTRY = DataSet(
    name="coins", title="Coins", what="Two coins.", rows=10, rows_fixed=True, arms="a, b",
    randomisation="in turn", outcome="won", zeros="half", citation="none", licence="CC0",
    source="a test", get="nothing to get", file_name=None, sha256=None, columns=("coin", "won"),
    frame=frame_coins,
)

def load_coins():
    return LoggedData.from_frame(frame_coins(), arm="coin", reward="won")
"""
    )
    monkeypatch.setattr(public, "__path__", [*public.__path__, str(tmp_path)])
    catalogue._modules.cache_clear()
    try:
        assert "coins" in datasets.names()
        assert datasets.load_coins().n_rows == 10
        assert datasets.check("coins").ok
        assert "zib.datasets.load_coins()" in datasets.info_text("coins")
    finally:
        monkeypatch.undo()
        catalogue._modules.cache_clear()
        sys.modules.pop("zib.logs.public.coins")


def test_an_entry_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        datasets.info("cprm").rows = 3  # type: ignore[misc]


def test_unknown_name() -> None:
    for call in (datasets.info, datasets.info_text, datasets.check, datasets.load_frame):
        with pytest.raises(
            LogError, match="`name` must be one of cprm, karlan_list, .*; got 'iris'"
        ):
            call("iris")


@pytest.mark.parametrize("name", ["karlan_zinman", "karlan_list", "cprm"])
def test_missing_file_says_where_to_get_it(name: str, tmp_path: Path) -> None:
    entry = datasets.info(name)
    load = getattr(datasets, f"load_{name}")
    with pytest.raises(LogError) as error:
        load(tmp_path / "no.csv")
    text = str(error.value)
    assert text.startswith(f"there is no file {tmp_path / 'no.csv'}: get ")
    assert entry.source in text
    assert entry.licence in text
    assert "\n" not in text
    report = datasets.check(name, tmp_path / "no.csv")
    assert not report.ok
    assert report.findings[-1].text == text
    assert datasets.check_text(name, None)[1] == 1
    with pytest.raises(LogError, match="`path` must name the file"):
        datasets.load_frame(name)
    with pytest.raises(LogError, match="`path` must be the path of .* got int"):
        load(3)


def test_a_file_with_another_checksum(tmp_path: Path) -> None:
    path = tmp_path / "kz.dta"
    kz_frame().to_stata(path, write_index=False)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = datasets.info("karlan_zinman").sha256
    with pytest.raises(LogError) as error:
        datasets.load_karlan_zinman(path)
    assert str(error.value) == (
        f"kz.dta is not the file of openICPSR 113240 V1: its sha256 is {found}, not {expected}; "
        "get it again, or pass verify=False to use it as it is"
    )
    log = datasets.load_karlan_zinman(path, context="female", verify=False)
    assert log.n_rows == ((kz_frame()["risk"] == "HIGH") & (kz_frame()["normrate_less"] == 1)).sum()
    text, status = datasets.check_text("karlan_zinman", path)
    assert status == 1
    assert found in text
    assert "kz.dta has 6000 rows" in text
    assert text.endswith("karlan_zinman: cannot be used as it is")


def test_a_file_with_the_known_checksum_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kz.dta"
    kz_frame().to_stata(path, write_index=False)
    known = dataclasses.replace(
        karlan_zinman.ENTRY, rows=6_000, sha256=hashlib.sha256(path.read_bytes()).hexdigest()
    )
    monkeypatch.setattr(karlan_zinman, "ENTRY", known)
    assert datasets.check("karlan_zinman", path).exit_status == 0
    assert datasets.load_karlan_zinman(path, context=()).n_features == 0
    assert len(datasets.load_frame("karlan_zinman", path)) == 6_000


@pytest.mark.parametrize("share", [0.0, 0.002, 0.3, 0.999])
@pytest.mark.parametrize("end", ["dta", "parquet", "csv.gz"])
def test_truncated_files(tmp_path: Path, share: float, end: str) -> None:
    path = tmp_path / f"kl.{end}"
    frame = kl_frame(stata=True)
    if end == "dta":
        frame.to_stata(path, write_index=False)
    elif end == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    for verify in (True, False):
        with pytest.raises(LogError) as error:
            datasets.load_karlan_list(path, verify=verify)
        assert f"kl.{end} cannot be read; it may be cut off" in str(error.value)
        assert "\n" not in str(error.value)
    assert datasets.check("karlan_list", path).exit_status == 1


def test_a_csv_that_lost_its_last_rows_is_noticed_by_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "kl.csv"
    kl_frame().to_csv(path, index=False)
    with pytest.raises(LogError, match=r"kl.csv has 900 rows and the Karlan–List 2007 data have "):
        datasets.load_karlan_list(path)
    assert datasets.load_karlan_list(path, verify=False).n_rows == 898


def test_wrong_columns(tmp_path: Path) -> None:
    path = tmp_path / "kl.csv"
    kl_frame().drop(columns="treat_ratio3").to_csv(path, index=False)
    with pytest.raises(LogError, match=r"kl.csv lacks `treat_ratio3` of the Karlan–List 2007 data"):
        datasets.load_karlan_list(path)
    with pytest.raises(LogError, match=r"the frame lacks `ratio2` of the"):
        datasets.load_karlan_list(kl_frame(stata=True).drop(columns="ratio2"))
    with pytest.raises(LogError, match=r"the frame lacks `mp`, `apply`, "):
        datasets.load_cprm(kl_frame())
    report = datasets.check("karlan_list", path)
    assert [f.what for f in report.findings if f.ok is False] == ["columns", "rows"]


def test_other_endings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "loans.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(LogError, match=r"`path` must end with one of .*\.dta.*; got 'loans.xlsx'"):
        datasets.load_cprm(path)


# Karlan and Zinman


def cells(frame: pd.DataFrame, edges: list[float]) -> pd.DataFrame:
    cut = pd.cut(frame["offer4"], edges)
    return frame.assign(cut=cut, label=cut.map(lambda i: f"({i.left:g}, {i.right:g}]").astype(str))


@pytest.fixture(scope="module")
def loans() -> pd.DataFrame:
    return pd.read_stata(data_file(KARLAN_ZINMAN))


def test_karlan_zinman_equals_a_direct_computation(loans: pd.DataFrame) -> None:
    log = datasets.load_karlan_zinman(data_file(KARLAN_ZINMAN))
    used = loans[(loans["risk"] == "HIGH") & (loans["normrate_less"] == 1)]
    used = cells(used, [0, 5, 6.5, 8, 9.5, 11.75])
    assert log.arms == ("(0, 5]", "(5, 6.5]", "(6.5, 8]", "(8, 9.5]", "(9.5, 11.75]")
    assert np.bincount(log.arm).tolist() == [6285, 3841, 8303, 6687, 16917]
    for k, (_, rows) in enumerate(used.groupby("cut", observed=True)):
        mine = log.reward[log.arm == k]
        theirs = rows["grossinterest"].to_numpy(dtype=np.float64)
        assert mine.size == len(rows)
        assert np.count_nonzero(mine) == rows["tookup"].sum()
        np.testing.assert_array_equal(mine, theirs)
        taken = rows.loc[rows["tookup"] == 1, "grossinterest"].astype(float)
        assert math.fsum(mine) / mine.size == math.fsum(theirs) / len(rows)
        assert math.fsum(mine[mine != 0]) / np.count_nonzero(mine) == (
            math.fsum(taken) / len(taken)
        )
    # The sum of 1/propensity over the rows of an arm is the number of rows: shares within waves.
    assert log.propensity is not None
    np.testing.assert_allclose(np.bincount(log.arm, 1 / log.propensity), log.n_rows, rtol=1e-12)
    table = pd.crosstab(used["wave"], used["label"], normalize="index").stack()
    expected = table.loc[pd.MultiIndex.from_frame(used[["wave", "label"]])]
    np.testing.assert_allclose(log.propensity, expected, rtol=1e-14)
    np.testing.assert_array_equal(log.time, used["wave"])
    assert list(log.unit) == used.index.tolist()  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        log.context[:, log.context_names.index("appscore")], used["appscore"]
    )


def test_karlan_zinman_all_classes_use_the_shares_within_class_and_wave(
    loans: pd.DataFrame,
) -> None:
    log = datasets.load_karlan_zinman(loans, risk=None)
    used = loans[loans["normrate_less"] == 1].reset_index(drop=True)
    used = cells(used, [0, 5, 6.5, 8, 9.5, 11.75])
    counts = used.groupby(["risk", "wave", "label"]).size()
    expected = counts / counts.groupby(["risk", "wave"]).transform("sum")
    index = pd.MultiIndex.from_frame(used[["risk", "wave", "label"]])
    np.testing.assert_allclose(log.propensity, expected.loc[index], rtol=1e-14)
    assert log.context_names[-3:] == ("risk=HIGH", "risk=LOW", "risk=MEDIUM")


@pytest.mark.parametrize(("risk", "top"), [("LOW", 7.75), ("MEDIUM", 9.75), ("HIGH", 11.75)])
def test_karlan_zinman_fifths(loans: pd.DataFrame, risk: str, top: float) -> None:
    log = datasets.load_karlan_zinman(loans, risk=risk, bins=None)
    assert log.n_arms == 5
    assert str(log.arms[0]).startswith("(0, ")
    assert str(log.arms[-1]).endswith(f", {top:g}]")
    shares = np.bincount(log.arm) / log.n_rows
    assert shares.min() > 0.08
    edges = [0.0, *(float(str(arm)[1:-1].split(", ")[1]) for arm in log.arms)]
    used = cells(loans[(loans["risk"] == risk) & (loans["normrate_less"] == 1)], edges)
    assert np.array(log.arms)[log.arm].tolist() == used["label"].tolist()


def test_karlan_zinman_as_offered() -> None:
    frame = kz_frame()
    log = datasets.load_karlan_zinman(frame, context=(), as_offered=True)
    used = frame[
        (frame["risk"] == "HIGH") & (frame["normrate_less"] == 1)
        & (frame["offer4"] == frame["final4"])
    ]  # fmt: skip
    assert list(log.unit) == used.index.tolist()  # type: ignore[arg-type]
    np.testing.assert_allclose(np.bincount(log.arm, 1 / log.propensity), len(used))  # type: ignore[operator]


def test_karlan_zinman_missing_context() -> None:
    frame = kz_frame()
    used = frame[(frame["risk"] == "HIGH") & (frame["normrate_less"] == 1)]
    missing = int(used["trcount"].isna().sum())
    with pytest.raises(LogError, match=rf"column `trcount` is missing in {missing} of {len(used)}"):
        datasets.load_karlan_zinman(frame, context=["trcount"])
    log = datasets.load_karlan_zinman(frame, context=["trcount"], drop_missing=True)
    assert log.n_rows == len(used) - missing
    np.testing.assert_allclose(np.bincount(log.arm, 1 / log.propensity), log.n_rows)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"risk": "high"}, "`risk` must be one of 'HIGH', 'MEDIUM', 'LOW'; got 'high'"),
        ({"bins": (0, 5, 9)}, "`bins` must cover the offers, which range from 3.25 to 11.75"),
        ({"bins": (3.25, 5, 12)}, "`bins` must cover the offers, which range from 3.25 to 11.75"),
        ({"bins": (0, 5, 5, 12)}, "`bins` must hold at least three increasing edges"),
        ({"bins": (0, 12)}, "`bins` must hold at least three increasing edges"),
        ({"bins": "abc"}, "`bins` must hold numbers"),
        ({"bins": (0, 3, 12)}, r"`bins` must all hold offers; none lies in \(0, 3\]"),
        ({"reward": "profit"}, "`reward` asks for 'profit', which the Karlan–Zinman 2008 data"),
        ({"reward": "risk"}, "column `risk` must hold numbers; row 1 holds"),
        ({"context": ["hat"]}, "`context` asks for 'hat', which the Karlan–Zinman 2008 data lack"),
    ],
)
def test_karlan_zinman_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        datasets.load_karlan_zinman(kz_frame(), **{"context": ()} | change)


# Karlan and List


@pytest.mark.parametrize("stata", [False, True])
def test_karlan_list_arms_and_propensities(stata: bool) -> None:
    frame = kl_frame(stata)
    log = datasets.load_karlan_list(frame, context=["hpa"])
    gift = "amount" if stata else "out_amountgive"
    assert log.arms == ("control", "1:1", "2:1", "3:1")
    known = frame[frame[gift].notna()]
    two, three = (f"{'' if stata else 'treat_'}ratio{r}" for r in (2, 3))
    want = np.select(
        [known["treatment"] == 0, known[two] == 1, known[three] == 1], [0, 2, 3], default=1
    )
    np.testing.assert_array_equal(log.arm, want)
    np.testing.assert_array_equal(log.reward, known[gift])
    np.testing.assert_array_equal(log.propensity, np.where(want == 0, 1 / 3, 2 / 9))
    assert list(log.unit) == known.index.tolist()  # type: ignore[arg-type]
    np.testing.assert_array_equal(log.context[:, 0], known["hpa"])


def test_karlan_list_reads_stata_files(tmp_path: Path) -> None:
    path = tmp_path / "kl.dta"
    frame = kl_frame(stata=True)
    frame.to_stata(path, write_index=False)
    log = datasets.load_karlan_list(path, verify=False)
    np.testing.assert_array_equal(log.reward, frame["amount"].dropna())


def test_karlan_list_missing_codes() -> None:
    frame = kl_frame()
    known = frame[frame["out_amountgive"].notna()]
    coded = int((known["female"] == -999).sum())
    with pytest.raises(LogError, match=rf"column `female` is missing \(coded -999\) in {coded} of"):
        datasets.load_karlan_list(frame, context="female")
    log = datasets.load_karlan_list(frame, context="female", drop_missing=True)
    assert log.n_rows == len(known) - coded
    assert log.context.min() == 1.0


def test_karlan_list_warns_of_more_missing_gifts_and_refuses_odd_flags() -> None:
    frame = kl_frame()
    frame.loc[20, "out_amountgive"] = np.nan
    with pytest.warns(UserWarning, match="3 of 900 rows have no `out_amountgive`"):
        datasets.load_karlan_list(frame)
    frame.loc[6, ["treatment", "treat_ratio2"]] = [0, 1]
    with pytest.raises(LogError, match=r"at most one ratio per treated row; row 7 holds 0, 1, "):
        datasets.load_karlan_list(frame)


def test_karlan_list_real_file() -> None:
    path = data_file(KARLAN_LIST)
    assert datasets.check("karlan_list", path).ok
    log = datasets.load_karlan_list(path, context=["hpa", "freq"])
    frame = pd.read_csv(path).dropna(subset="out_amountgive")
    assert log.n_rows == 50_081
    shares = np.bincount(log.arm) / log.n_rows
    # Five standard errors of a share: wrong with probability below 1e-5 if the design holds.
    np.testing.assert_allclose(shares, [1 / 3, 2 / 9, 2 / 9, 2 / 9], atol=5 * 0.5 / 50_081**0.5)
    control = frame.loc[frame["treatment"] == 0, "out_amountgive"]
    three = frame.loc[frame["treat_ratio3"] == 1, "out_amountgive"]
    assert math.fsum(log.reward[log.arm == 0]) == math.fsum(control)
    assert math.fsum(log.reward[log.arm == 3]) == math.fsum(three)
    # Table 2A of the article: 0.81, 0.94, 1.03, 0.94 dollars per letter; 1.8 and 2.1 to 2.3 %.
    means = [log.reward[log.arm == k].mean() for k in range(4)]
    np.testing.assert_allclose(means[:3], [0.813, 0.937, 1.026], atol=6e-4)
    assert 0.930 < means[3] < 0.938  # the two gifts without an amount are missing here
    gave = [np.mean(log.reward[log.arm == k] > 0) for k in range(4)]
    np.testing.assert_allclose(gave, [0.018, 0.021, 0.023, 0.023], atol=6e-4)


# CPRM


def test_loan_price_is_the_present_value() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        pay, term = rng.uniform(100, 900), int(rng.integers(1, 90))
        prime, amount = rng.choice([0.0, 1e-9, 0.0012, 0.02]), rng.uniform(1e3, 4e4)
        direct = (math.fsum(pay * (1 + prime) ** -t for t in range(1, term + 1)) - amount) / 1000
        assert loan_price(pay, term, prime, amount) == pytest.approx(direct, rel=1e-9, abs=1e-9)


def test_the_unit_of_the_prime_rate_is_found() -> None:
    percent = np.array([1.1, 1.4, 2.2])
    for unit, factor in (
        ("percent per year", 1.0), ("fraction per year", 0.01),
        ("percent per month", 1 / 12), ("fraction per month", 0.01 / 12),
    ):  # fmt: skip
        np.testing.assert_allclose(monthly_prime(percent * factor), percent / 1200)
        np.testing.assert_allclose(monthly_prime(percent * factor, unit), percent / 1200)
    with pytest.raises(LogError, match="its median is 14"):
        monthly_prime(percent * 10)
    with pytest.raises(ValueError, match="`prime_unit` must be one of"):
        monthly_prime(percent, "percent")


def test_cprm(tmp_path: Path) -> None:
    frame = cprm_frame()
    path = tmp_path / "cprm.csv"
    frame.to_csv(path, index=False)
    log = datasets.load_cprm(path)
    prime = frame["onemonth"] / 1200
    price = np.array(
        [
            (m * sum((1 + p) ** -t for t in range(1, n + 1)) - a) / 1000
            for m, n, p, a in zip(frame["mp"], frame["Term"], prime, frame["Amount_Approved"])
        ]
    )
    priced = datasets.frame_cprm(path)
    np.testing.assert_allclose(priced["price"], price, rtol=1e-9, atol=1e-9)
    assert list(priced.columns[: len(frame.columns)]) == list(frame.columns)
    assert log.arms == ("low", "medium", "high", "very high", "luxury")
    cut = pd.cut(price, [-np.inf, *CUTS, np.inf], labels=False)
    np.testing.assert_array_equal(log.arm, cut)
    assert set(cut) == set(range(5))
    np.testing.assert_allclose(log.reward, price * (frame["apply"] == 1), rtol=1e-9, atol=1e-9)
    assert np.mean(log.reward == 0) == np.mean(frame["apply"] == 0)
    assert not log.has_propensity
    assert log.context_names == (
        "Primary_FICO", "Amount_Approved", "onemonth", "Competition_rate", "Term",
    )  # fmt: skip
    report = datasets.check("cprm", path)
    assert report.ok
    low = 100 * np.mean(cut == 0)
    assert f"the five classes hold {low:.4g}, " in str(report)
    assert "2000, expected about 208085" in str(report)


def test_price_classes_hold_their_upper_edge() -> None:
    assert price_class(CUTS).tolist() == [0, 1, 2, 3]
    assert price_class(np.nextafter(CUTS, 99)).tolist() == [1, 2, 3, 4]
    assert price_class([-3.0]).tolist() == [0]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("apply", 2, "column `apply` must hold 0 or 1; row 3 holds 2"),
        ("mp", np.nan, r"column `mp` must hold a number in every row; row 3 is missing \(1 are"),
        ("Term", "long", "column `Term` must hold numbers"),
    ],
)
def test_cprm_refuses(column: str, value: Any, message: str) -> None:
    frame = cprm_frame()
    frame[column] = frame[column].astype(object)
    frame.loc[2, column] = value
    with pytest.raises(LogError, match=message):
        datasets.load_cprm(frame)


# RAND


def test_randhie_equals_statsmodels() -> None:
    from statsmodels.datasets import randhie

    frame = randhie.load_pandas().data
    log = datasets.load_randhie()
    assert log.arms == (0, 25, 50, 95, 100)
    assert not log.has_propensity
    np.testing.assert_array_equal(log.reward, frame["mdvis"])
    np.testing.assert_allclose(
        np.log1p(np.array(log.arms, dtype=float)[log.arm]), frame["lncoins"], atol=1e-5
    )
    np.testing.assert_array_equal(log.context, frame[list(log.context_names)])
    assert 0.31 < np.mean(log.reward == 0) < 0.32
    assert datasets.check("randhie").ok
    assert isinstance(datasets.load_randhie(context=()), LoggedData)
    with pytest.raises(LogError, match="`path` must be left out"):
        datasets.load_frame("randhie", "x.csv")


def test_randhie_without_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(LogError, match=r'which is missing: pip install "zib\[data\]"'):
        datasets.load_randhie()
    assert datasets.check("randhie").exit_status == 1
