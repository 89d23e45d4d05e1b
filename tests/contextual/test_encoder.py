from __future__ import annotations

import datetime
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import zib
from tests.fuzz import forge
from zib import ContextualBandit, Encoder, InvalidParameterError, SavedStateError, contextual
from zib.core.entry import interpreted

ARMS = ["red", "blue"]
SPEC = contextual.Disjoint(spec=contextual.JointUCB(memory=256), n_arms=2)


def people(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 10.0, n).round(1),
            "country": rng.choice(["DE", "FR", "IT"], n, p=[0.6, 0.3, 0.1]),
            "new": rng.random(n) < 0.3,
            "shop": rng.integers(3, size=n),
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame.loc[5, "country"] = None
    frame.loc[[7, 8], "country"] = "MT"  # fewer than 1 % of the rows
    return frame


FRAME = people()
ENCODER = Encoder(categories=["shop"]).fit(FRAME)


@pytest.fixture(autouse=True)
def _without_compiling():
    with interpreted():
        yield


def test_names_of_the_features() -> None:
    assert ENCODER.feature_names == (
        "intercept", "age", "age missing", "country=DE", "country=FR", "country=IT",
        "country other", "country missing", "new", *ENCODER.feature_names[9:12], "shop other",
    )  # fmt: skip
    assert set(ENCODER.feature_names[9:12]) == {"shop=0", "shop=1", "shop=2"}
    assert ENCODER.n_features == 13
    assert repr(ENCODER) == "Encoder(age, country, new, shop: 13 features)"
    assert repr(Encoder()) == "Encoder(not fitted)"


@pytest.mark.slow
def test_features_are_those_of_scikit_learn() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    impute = pytest.importorskip("sklearn.impute")
    found = ENCODER.transform(FRAME)
    age = impute.SimpleImputer(add_indicator=True).fit_transform(FRAME[["age"]])
    known = FRAME["age"].dropna().to_numpy()
    scaler = preprocessing.StandardScaler().fit(known[:, None])
    assert found[:, 0].tolist() == [1.0] * len(FRAME)
    np.testing.assert_allclose(found[:, 1], scaler.transform(age[:, :1])[:, 0], atol=1e-12)
    assert np.array_equal(found[:, 2], age[:, 1])
    country = FRAME["country"].replace("MT", "other").fillna("missing").to_numpy()[:, None]
    levels = [["DE", "FR", "IT", "other", "missing"]]
    dummies = preprocessing.OneHotEncoder(categories=levels, sparse_output=False)
    assert np.array_equal(found[:, 3:8], dummies.fit_transform(country))
    assert np.array_equal(found[:, 8], FRAME["new"].to_numpy().astype(float))


def test_every_form_of_a_table_is_the_same() -> None:
    wanted = ENCODER.transform(FRAME)
    rows = FRAME.to_dict("records")
    forms = [
        pa.Table.from_pandas(FRAME),
        FRAME.assign(country=FRAME["country"].astype("category")),
        FRAME.convert_dtypes(),
        rows,
        {name: FRAME[name].to_numpy() for name in FRAME},
    ]
    for form in forms:
        assert np.array_equal(ENCODER.transform(form), wanted)
        assert Encoder(categories=["shop"]).fit(form) == ENCODER
    assert np.array_equal([ENCODER.transform(row) for row in rows], wanted)


@pytest.mark.slow  # Polars is large, and installed for the slow tests only
def test_frames_of_polars_are_tables_too() -> None:
    form = pytest.importorskip("polars").from_pandas(FRAME)
    assert np.array_equal(ENCODER.transform(form), ENCODER.transform(FRAME))
    assert Encoder(categories=["shop"]).fit(form) == ENCODER


def test_unseen_levels_and_gaps_of_one_row() -> None:
    row = {"age": None, "country": "XX", "new": None, "shop": 99, "more": object()}
    names = np.array(ENCODER.feature_names)
    found = ENCODER.transform(row)
    assert set(names[found == 1.0]) == {"intercept", "age missing", "country other", "shop other"}
    for gap in (None, np.nan, pd.NA, pd.NaT):
        found = ENCODER.transform({**row, "country": gap, "age": gap})
        assert "country missing" in names[found == 1.0]
    # a gap where the table had none: the mean, False, and another level
    found = ENCODER.transform({"age": 40, "country": "DE", "new": None, "shop": None})
    assert set(names[found == 1.0]) == {"intercept", "country=DE", "shop other"}


def test_numbers_far_outside_are_clipped_with_one_warning() -> None:
    encoder = Encoder().fit({"x": [0.0, 1.0, 2.0, 3.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.transform({"x": 6.0})[1] > encoder.transform({"x": 5.9})[1]
    with pytest.warns(UserWarning, match=r"'x' was 1e\+09, far outside the \[0, 3\]"):
        found = encoder.transform({"x": 1e9})
    assert np.array_equal(found, encoder.transform({"x": 6.0}))
    assert np.array_equal(encoder.transform({"x": [1e9, -1e9]})[:, 1], [found[1], -found[1]])
    with pytest.warns(UserWarning, match="far outside"):
        Encoder().fit({"x": [0.0, 1.0]}).transform({"x": [0.0, -7.0]})


def test_levels_are_bounded_and_rare_ones_pooled() -> None:
    values = ["a"] * 5 + ["b"] * 3 + ["c"]
    assert Encoder(rare=3, intercept=False).fit({"x": values}).feature_names == (
        "x=a", "x=b", "x other",
    )  # fmt: skip
    assert Encoder(most_levels=1).fit({"x": values}).n_features == 3
    ids = {"id": [f"user {i}" for i in range(300)]}
    with pytest.raises(InvalidParameterError, match="300 different values, none in 3 rows"):
        Encoder().fit(ids)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"x": [datetime.date(2026, 1, 1)]}, "'x'; got dates or times: give what matters"),
        ({"x": [None, None]}, "`frame` must hold values in 'x'; all are missing"),
        ({"x": [np.nan, np.nan]}, "`frame` must hold values in 'x'; all are missing"),
        ({"x": [1.0, np.inf]}, r"`x` must lie in"),
        ({"x": ["a", 1]}, "values of one kind in 'x'"),
        ({"x": [[1], [2]]}, "must hold numbers, text or truth values in 'x'; got list"),
        ({"x": [1.0], "y": [1.0, 2.0]}, r"columns of equal length; got \[1, 2\]"),
        ([{"x": 1.0}, {"y": 1.0}], "must hold 'x' in every row"),
        ({"x": []}, "must have at least one row"),
        (pd.DataFrame(), "must have at least one row"),
        ({1: [2.0]}, "columns with different names"),
        (3.0, "must be a pandas or Polars frame"),
        (None, "must be a pandas or Polars frame"),
    ],
)
def test_tables_that_cannot_be_learned(frame, message) -> None:
    encoder = Encoder().fit({"z": [1.0, 2.0]})
    with pytest.raises(InvalidParameterError, match=message):
        encoder.fit(frame)
    assert encoder.feature_names == ("intercept", "z")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"country": "DE"}, "`features` must hold 'age', with None where it is missing"),
        ({"age": "31"}, "a number or None for 'age'; got '31'"),
        ({"age": np.inf}, "a finite number or None for 'age'; got inf"),
        ({"age": 1, "country": 49}, "text or None for 'country'; got 49"),
        ({"age": 1, "country": ["DE"]}, "text or None for 'country'"),
        ({"age": 1, "country": "DE", "new": "yes"}, "True, False or None for 'new'; got 'yes'"),
        ({"age": 1, "country": "DE", "new": True, "shop": "1"}, "a number or None for 'shop'"),
        (FRAME[["age"]], "must have a column 'country'"),
        (FRAME.assign(age="old"), "must hold numbers in 'age'; got text"),
        (FRAME.assign(age=np.inf), "a finite number or None for 'age'; got inf"),
        (FRAME.assign(new=2), "True, False or None for 'new'; got 2"),
        (FRAME.assign(country=1), "text or None for 'country'; got 1"),
        (FRAME.rename(columns={"age": "agee"}), "'age' .did you mean 'agee'"),
    ],
)
def test_rows_that_cannot_be_encoded(row, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        ENCODER.transform(row)


def test_an_encoder_has_to_be_fitted() -> None:
    with pytest.raises(InvalidParameterError, match="`fit` must be called first"):
        Encoder().transform({"x": 1.0})
    with pytest.raises(InvalidParameterError, match="`encoder` must be fitted"):
        ContextualBandit(arms=ARMS, encoder=Encoder())
    with pytest.raises(InvalidParameterError, match="`categories` must be among `columns`"):
        Encoder(columns=["x"], categories=["y"])


# -------------------------------------------------------------------------------- in a bandit


def bandit_with(encoder=ENCODER, **options) -> ContextualBandit:
    return ContextualBandit(SPEC, arms=ARMS, encoder=encoder, seed=1, **options)


def test_a_bandit_takes_dictionaries_and_frames() -> None:
    bandit, twin = bandit_with(), ContextualBandit(SPEC, arms=ARMS, n_features=13, seed=1)
    assert bandit.n_features == (13, 13)
    assert bandit.encoder == ENCODER
    rows, known = FRAME.to_dict("records"), ENCODER.transform(FRAME)
    for k in range(5):
        arm = bandit.select(rows[k])
        assert arm == twin.select(known[k])
        bandit.update(arm, float(k), rows[k])
        twin.update(arm, float(k), known[k])
    assert bandit.select_many(FRAME) == twin.select_many(known)
    assert bandit.select_many(rows[:7]) == twin.select_many(known[:7])
    bandit.update_many(["red"] * 10, np.zeros(10), pa.Table.from_pandas(FRAME[:10]))
    twin.update_many(["red"] * 10, np.zeros(10), known[:10])
    assert bandit.indices(rows[3]) == twin.indices(known[3])
    assert bandit.indices(FRAME.iloc[3]) == twin.indices(known[3])
    assert bandit.predict(rows[3], arms=["blue"]).r == twin.predict(known[3], arms=["blue"]).r
    assert bandit.propensities(known[3]) == twin.propensities(known[3])  # features already
    assert bandit.select(FRAME[:2]) == twin.select(known[:2])  # one row per arm
    before = bandit.dumps()
    for bad in ({"age": 3}, {**rows[0], "age": "x"}, FRAME[["age"]], "x", None):
        with pytest.raises(InvalidParameterError):
            bandit.select(bad)
        with pytest.raises(InvalidParameterError):
            bandit.update("red", 1.0, bad)
    assert bandit.dumps() == before


def test_fitting_again_does_not_change_a_bandit() -> None:
    encoder = Encoder().fit({"x": [1.0, 2.0]})
    bandit = bandit_with(encoder)
    encoder.fit(FRAME)
    assert bandit.encoder.feature_names == ("intercept", "x")
    with pytest.raises(InvalidParameterError, match="`n_features` must be that of the encoder, 2"):
        bandit_with(Encoder().fit({"x": [1.0, 2.0]}), n_features=3)
    with pytest.raises(InvalidParameterError, match="`encoder` must be a zib.Encoder or have"):
        bandit_with("one")


def test_an_encoder_is_saved_as_data(tmp_path) -> None:
    bandit = bandit_with()
    row = FRAME.to_dict("records")[0]
    bandit.update("red", 2.0, row)
    bandit.save(tmp_path / "bandit.json")
    twin = ContextualBandit.load(tmp_path / "bandit.json")
    assert twin.encoder == ENCODER
    assert twin.dumps() == bandit.dumps()
    assert twin.indices(row) == bandit.indices(row)


def test_files_without_encoders_still_load() -> None:
    content = forge.content_of(ContextualBandit(SPEC, arms=ARMS, n_features=2, seed=1))
    content["format_version"] = 2
    del content["encoder"]
    assert ContextualBandit.loads(zib.core.saved.dumps(content)).encoder is None
    for version in (1, 4):
        content["format_version"] = version
        with pytest.raises(SavedStateError, match="was written by"):
            ContextualBandit.loads(zib.core.saved.dumps(content))


def test_forged_encoders_are_refused_or_used() -> None:
    """Every file loads and works, or is refused in one sentence."""
    rng = np.random.default_rng(3)
    row = FRAME.to_dict("records")[0]
    content = {"encoder": ENCODER.to_data(), "state": ENCODER.to_data()["columns"]}
    refused = 0
    for _ in range(150):
        forged = json.loads(forge.forged(content, rng).text)
        for data in (
            forged.get("encoder"),
            {"intercept": True, "columns": forged.get("state")},
        ):
            try:
                encoder = Encoder.from_data(data)
            except SavedStateError:
                refused += 1
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    found = encoder.transform(row)
                    assert np.isfinite(found).all()
                    assert np.array_equal(encoder.transform([row])[0], found)
            except InvalidParameterError:
                pass  # it asks for columns of other names or kinds
    assert refused > 25


class Doubled:
    """A transformer of nobody's."""

    def transform(self, rows):
        return np.hstack([np.ones((len(rows), 1)), 2.0 * np.asarray(rows, dtype=float)])


def test_any_transformer_will_do(tmp_path) -> None:
    with pytest.raises(InvalidParameterError, match="`n_features` must be given with an encoder"):
        bandit_with(Doubled())
    bandit = bandit_with(Doubled(), n_features=3)
    twin = ContextualBandit(SPEC, arms=ARMS, n_features=3, seed=1)
    for user in ([0.5, 1.0], np.array([0.5, 1.0]), {"a": 0.5, "b": 1.0}, pd.Series([0.5, 1.0])):
        arm = bandit.select(user)
        assert arm == twin.select([1.0, 1.0, 2.0])
        bandit.update(arm, 1.5, user)
        twin.update(arm, 1.5, [1.0, 1.0, 2.0])
        assert bandit.indices(user) == twin.indices([1.0, 1.0, 2.0])
    assert bandit.select_many([[0.5, 1.0]] * 3) == twin.select_many([[1.0, 1.0, 2.0]] * 3)
    with pytest.raises(InvalidParameterError, match="`features` must be what Doubled takes"):
        bandit.select({"a": "x", "b": "y"})
    path = tmp_path / "bandit.json"
    with pytest.warns(UserWarning, match=r"saved without its encoder, Doubled.*encoder=\.\.\."):
        bandit.save(path)
    with pytest.raises(SavedStateError, match=r"without its encoder, Doubled.*encoder=\.\.\."):
        ContextualBandit.load(path)
    again = ContextualBandit.load(path, encoder=Doubled())
    assert again.dumps() == bandit.dumps()
    assert again.indices([0.5, 1.0]) == bandit.indices([0.5, 1.0])


@pytest.mark.slow
def test_a_pipeline_of_scikit_learn_is_an_encoder() -> None:
    compose = pytest.importorskip("sklearn.compose")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    transformer = compose.make_column_transformer(
        (preprocessing.StandardScaler(), ["age"]),
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), ["country"]),
    )
    known = FRAME.dropna()
    transformer.fit(known)
    bandit = bandit_with(transformer)
    assert bandit.n_features == (5, 5)
    row = known.to_dict("records")[0]
    wanted = transformer.transform(known[:1])
    wanted = wanted.toarray()[0] if hasattr(wanted, "toarray") else wanted[0]
    twin = ContextualBandit(SPEC, arms=ARMS, n_features=5, seed=1)
    bandit.update("red", 2.0, row)
    twin.update("red", 2.0, wanted)
    assert bandit.indices(row) == twin.indices(wanted)
    assert bandit.select_many(known[:3]) == twin.select_many(
        np.asarray(transformer.transform(known[:3]))
    )
