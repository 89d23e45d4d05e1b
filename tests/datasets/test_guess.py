from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.datasets.data import KARLAN_LIST, data_file
from zib.logs import LogError, LoggedData, guess, guess_columns

N = 2_000


def made(**kinds: str) -> pd.DataFrame:
    """A frame with these columns; the kind says what they hold."""
    rng = np.random.default_rng(7)
    few = rng.random(N) < 0.06
    make = {
        "money": lambda: np.where(few, rng.exponential(30.0, N).round(2), 0.0),
        "amount": lambda: rng.uniform(10, 900, N),
        "flag": lambda: rng.integers(0, 2, N),
        "rare": lambda: few.astype(int),
        "text": lambda: rng.choice(["A", "B", "C"], N),
        "codes": lambda: rng.integers(0, 8, N),
        "levels": lambda: rng.choice([5.5, 7.25, 9.75], N),
        "many": lambda: rng.integers(0, 10**9, N),
        "id": lambda: rng.permutation(N),
        "ids": lambda: [f"u{i}" for i in rng.permutation(N)],
        "repeated": lambda: rng.integers(0, 300, N),
        "prob": lambda: rng.uniform(0.05, 0.9, N),
        "dates": lambda: pd.date_range("2024-01-01", periods=N, freq="min"),
        "real": lambda: rng.normal(size=N),
    }
    return pd.DataFrame({name: make[kind]() for name, kind in kinds.items()})


# header, and what is to be found in the order arm, reward, propensity, time, unit
HEADERS: list[tuple[dict[str, str], tuple[str | None, ...]]] = [
    (  # an e-mail test
        {"recency": "codes", "history_segment": "text", "history": "amount", "mens": "flag",
         "newbie": "flag", "channel": "text", "segment": "text", "visit": "flag",
         "conversion": "rare", "spend": "money"},
        ("segment", "spend", None, None, None),
    ),
    (  # an ad log with propensities
        {"timestamp": "dates", "item_id": "codes", "position": "codes", "click": "rare",
         "propensity_score": "prob", "user_feature_0": "text"},
        ("item_id", "click", "propensity_score", "timestamp", None),
    ),
    (  # uplift
        {"f0": "real", "f1": "real", "treatment": "flag", "conversion": "rare", "exposure": "flag"},
        ("treatment", "conversion", None, None, None),
    ),
    (  # a loan log
        {"application_id": "ids", "fico": "many", "amount_approved": "amount",
         "interest_rate": "levels", "accepted": "rare", "profit": "money"},
        ("interest_rate", "profit", None, None, "application_id"),
    ),
    (  # a bandit's own log
        {"round": "id", "arm": "codes", "reward": "money", "prob": "prob", "x0": "real"},
        ("arm", "reward", "prob", "round", None),
    ),
    (
        {"userId": "ids", "variantName": "text", "netRevenue": "money", "createdAt": "dates"},
        ("variantName", "netRevenue", None, "createdAt", "userId"),
    ),
    (
        {"user_id": "repeated", "campaign": "text", "total_sales": "money", "order_date": "dates"},
        ("campaign", "total_sales", None, "order_date", "user_id"),
    ),
    (  # nothing but content
        {"who": "ids", "which": "text", "how_much": "money", "score": "real"},
        ("which", "how_much", None, None, None),
    ),
    (  # probabilities of other things are no propensities
        {"action": "codes", "payout": "money", "predicted_click_prob": "prob",
         "churn_propensity": "prob", "days_since_last": "codes", "birth_year": "many"},
        ("action", "payout", None, None, None),
    ),
    (
        {"action": "codes", "payout": "money", "logging_policy_prob": "prob", "p_click": "prob"},
        ("action", "payout", "logging_policy_prob", None, None),
    ),
    (  # a reward is preferred to be mostly zero
        {"offer": "text", "income": "amount", "donation_value": "money"},
        ("offer", "donation_value", None, None, None),
    ),
    (  # but a column named so is the reward in any case
        {"ad": "text", "reward": "real", "revenue": "money"},
        ("ad", "reward", None, None, None),
    ),
    (
        {"price": "levels", "purchase_amount": "money", "session_id": "ids", "day": "codes"},
        ("price", "purchase_amount", None, "day", "session_id"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("header", "wanted"), HEADERS)
def test_headers(header: dict[str, str], wanted: tuple[str | None, ...], tmp_path: Path) -> None:
    frame = made(**header)
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    for source in (frame, path, pa.Table.from_pandas(frame)):
        found = guess_columns(source)
        assert (found.arm, found.reward, found.propensity, found.time, found.unit) == wanted
        assert found.context == ()
        for role, column in zip(("arm", "reward"), wanted):
            assert any(r.startswith(f"{role}: `{column}`, ") for r in found.reasons)
    repeated = "repeated" in header.values()
    with pytest.warns(UserWarning, match="more than once") if repeated else nullcontext():
        log = LoggedData.read(path, **guess_columns(path).roles)
    assert log.n_rows == N


def test_reasons_are_sentences() -> None:
    frame = made(user_id="repeated", campaign="text", revenue="money")
    zeros = f"{100 * np.mean(frame['revenue'] == 0):.3g}"
    assert guess_columns(frame).reasons == (
        "arm: `campaign`, by its name, 3 values",
        f"reward: `revenue`, by its name, {zeros} % zeros",
        f"unit: `user_id`, by its name, though {N - frame['user_id'].nunique()} of {N} rows repeat "
        "a value (--cluster user_id if rows of one value belong together)",
    )
    assert guess_columns(frame.assign(user_id="new")).unit is None


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"variant": "text", "loan_amount": "money", "gross_interest": "money"},
            r"several columns of the frame may be the reward: `loan_amount` \(94.5 % zeros\), "
            r"`gross_interest` \(94.5 % zeros\); name it: --reward COLUMN",
        ),
        (
            {"treatment": "flag", "treat_ratio2": "flag", "treat_ratio3": "flag", "gift": "money"},
            r"may be the arm \(it may be spread over several columns\): `treatment` "
            r"\(0 and 1 only\), `treat_ratio2` \(0 and 1 only\), `treat_ratio3` \(0 and 1 only\); "
            "name it: --arm COLUMN",
        ),
        (
            {"campaign": "text", "offer": "text", "spend": "money"},
            r"several columns of the frame may be the arm: `campaign` \(3 values\), `offer` \(3 "
            r"values\); name it: --arm",
        ),
        (
            {"which": "text", "where": "text", "spend": "money"},
            r"may be the arm: `which` \(3 values\), `where` \(3 values\); name it: --arm COLUMN",
        ),
        (
            {"score": "real", "spend": "money"},
            "no column of the frame looks like the arm; name it: --arm COLUMN .* one of score, ",
        ),
        (
            {"variant": "text", "comment": "ids"},
            "no column of the frame looks like the reward; name it: --reward COLUMN",
        ),
        ({"arm": "many", "spend": "money"}, "no column of the frame looks like the arm"),
        (
            {"arm": "text", "spend": "money", "prob": "prob", "p": "prob"},
            "several columns may be the propensity: `prob`, `p`; name it: --propensity COLUMN",
        ),
    ],
)
def test_doubt_is_not_decided(header: dict[str, str], message: str) -> None:
    with pytest.raises(LogError, match=message):
        guess_columns(made(**header))


def test_karlan_list_has_to_be_told_the_arm() -> None:
    path = data_file(KARLAN_LIST)
    with pytest.raises(
        LogError, match=r"may be the arm .*`treatment` \(.*\), `treat_ratio2` .*--arm COLUMN"
    ):
        guess_columns(path)
    assert guess_columns(path, arm="treatment").reward == "out_amountgive"


def test_what_is_given_is_kept() -> None:
    frame = made(variant="text", other="text", revenue="money", cost="money", p="prob", t="dates")
    found = guess_columns(
        frame, arm="other", reward="cost", propensity="", context=["variant"], time=None
    )
    assert found.roles == {
        "arm": "other", "reward": "cost", "propensity": None, "time": "t", "unit": None,
        "cluster": None,
        "context": ("variant",),
    }  # fmt: skip
    assert found.reasons[:2] == ("arm: `other`, as given", "reward: `cost`, as given")
    assert guess_columns(frame, arm="variant").propensity == "p"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arm": "varant"}, "has no column 'varant' .*did you mean 'variant'"),
        ({"context": "age"}, "has no column 'age'"),
        ({"arm": ""}, "`arm` must name a column"),
        ({"colour": "variant"}, "roles are arm, reward, .*; got 'colour'"),
    ],
)
def test_given_columns_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        guess_columns(made(variant="text", revenue="money"), **given)


def test_only_the_first_rows_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frame = made(user_id="ids", variant="text", revenue="money")
    frame.loc[1_500, "revenue"] = np.nan
    path = tmp_path / "l.parquet"
    frame.to_parquet(path, row_group_size=400)
    assert guess_columns(path).unit == "user_id"
    monkeypatch.setattr(guess, "SAMPLE", 1_000)
    found = guess_columns(path)
    assert found.unit is None
    assert found.reasons[-1] == (
        "unit: none, since only the first 1000 rows of `user_id` were looked at"
    )
    zeros = 100 * np.mean(frame["revenue"][:1_000] == 0)
    assert found.reasons[1] == f"reward: `revenue`, by its name, {zeros:.3g} % zeros"
    monkeypatch.setattr(guess, "SAMPLE", N)
    assert guess_columns(path).unit == "user_id"


def test_a_few_missing_values_do_not_hide_a_column() -> None:
    frame = made(variant="text", revenue="money", shape="text")
    frame.loc[3, ["variant", "revenue"]] = None
    found = guess_columns(frame)
    assert (found.arm, found.reward) == ("variant", "revenue")
    with pytest.raises(LogError, match="row 4 is missing"):
        LoggedData.from_frame(frame, **found.roles)


def test_columns_of_other_kinds(tmp_path: Path) -> None:
    frame = made(variant="text", revenue="money")
    frame["seen"] = [[1, 2]] * N
    frame["opened"] = frame["revenue"] > 0
    frame["kind"] = pd.Categorical(["x", "y"] * (N // 2))
    frame["note"] = None
    path = tmp_path / "l.parquet"
    frame.to_parquet(path)
    for source in (frame, path):
        assert guess_columns(source).roles == guess_columns(frame[["variant", "revenue"]]).roles
    found = guess_columns(frame[["opened", "revenue", "note"]])  # true and false are values too
    assert found.arm == "opened"


def test_small_and_empty_tables(tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm": ["a", "b", "a", "b"], "spend": [0.0, 0.0, 1.5, 0.0]})
    assert guess_columns(frame).arm == "arm"
    with pytest.raises(LogError, match="has no rows"):
        guess_columns(frame[:0])
    with pytest.raises(LogError, match="there is no file"):
        guess_columns(tmp_path / "no.csv")
