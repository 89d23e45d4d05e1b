"""live.toml: what it says, and how every mistake in it is told."""

import pickle
import tomllib
from pathlib import Path

import pytest

from zib.contextual import Adaptive, JointUCB
from zib.live import Ledger
from zib.live.service.config import (
    BANDIT,
    EXAMPLE,
    TABLES,
    Config,
    ConfigError,
    Limits,
    Server,
    Token,
)
from zib.mab import ZITS

LITTLE = """
database = "live.db"
[bandit.checkout]
arms = ["A", "B", 7]
window = "7d"
"""
DIGEST = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def _no_database_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZIB_DATABASE", raising=False)


def load(folder: Path, text: str, **changes: object) -> Config:
    path = folder / "live.toml"
    path.write_text(text, encoding="utf-8")
    return Config.load(path, changes)


def test_a_little_file_gets_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, LITTLE)
    assert config.database == str(tmp_path / "live.db")
    assert config.server == Server()
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert config.limits == Limits()
    assert config.tokens == ()
    (bandit,) = config.bandits
    assert (bandit.name, bandit.arms) == ("checkout", ("A", "B", 7))
    assert bandit.parameters == {"window": "7d"}
    assert pickle.loads(pickle.dumps(config)) == config  # on its way to a worker


def test_changes_and_the_environment_replace_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIB_DATABASE", "postgresql://shop:secret@db.example.org/live")
    config = load(tmp_path, LITTLE, server={"port": 81, "workers": 4})
    assert (config.server.port, config.server.workers) == (81, 4)
    assert config.is_postgres
    assert config.database_words == "PostgreSQL, db.example.org/live"
    assert "secret" not in repr(config)


def test_the_example_holds_and_names_every_key(tmp_path: Path) -> None:
    config = load(tmp_path, EXAMPLE)
    assert config.server == Server()
    assert config.limits == Limits()
    words = EXAMPLE.replace("# ", "")
    for key in (*TABLES, *Server.declared, *Limits.declared, *Token.declared, *BANDIT):
        assert any(form in words for form in (f"\n{key} = ", f"[{key}", f".{key}]"))


def test_the_commented_parts_of_the_example_hold_too(tmp_path: Path) -> None:
    lines = EXAMPLE.split("\n")
    code = [line[2:] for line in lines if line.startswith("# ") and (" = " in line or "[" in line)]
    code = [line for line in code if not line.startswith(("[bandit.NAME]", "With", "Another"))]
    tables = tomllib.loads("\n".join(code).replace('"..."', f'"{DIGEST}"'))  # of [bandit.checkout]
    rest = {key: value for key, value in tables.items() if key not in ("bandit", "token")}
    assert set(rest) <= set(BANDIT)
    assert set(tables["bandit"]) == {"checkout", "offers"}
    assert Token(**tables["token"][0]).name == "shop"


TOKEN = f"[[token]]\nname = 'a'\nrole = 'read'\nsha256 = '{DIGEST}'\n"
OUTSIDE = [  # what stands above the bandits, and the sentence
    ("[serve]", "'serve' is not a setting; did you mean 'server'?"),
    ("[x]", "'x' is not a setting; known: bandit, database, limits, server, token"),
    ("server = 3", "server must be a table, as in [server]; got 3"),
    ("[server]\nprt = 1", "server: 'prt' is not a setting; did you mean 'port'?"),
    ("[server]\nport = 70000", "server: `port` must lie in [0, 65535]; got 70000"),
    ("[server]\nport = '80'", "server: `port` must be a whole number in [0, 65535]; got '80'"),
    (
        "[server]\nhost = '0.0.0.0'",
        "server: `host` must be a loopback address such as '127.0.0.1' while there is no "
        "[[token]] (`zib serve --token` makes one); got '0.0.0.0'",
    ),
    (
        "[server]\nworkers = 2",
        "server: `workers` must be 1 with SQLite, which serves one process (use PostgreSQL for "
        "several); got 2",
    ),
    ("[limits]\nrate = -1", "limits: `rate` must lie in [0, inf); got -1"),
    (
        "[limits]\narms = 2",
        "bandit.checkout: `arms` must hold at most 2 labels (`arms` in [limits]); got 3",
    ),
    ("[token]", "token must be tables, each headed [[token]]; got {}"),
    (TOKEN.replace("sha256", "sha"), "token 1: 'sha' is not a setting; did you mean 'sha256'?"),
    (
        "[[token]]\nname = 'a'\nrole = 'read'",
        "token 1: `sha256` must be given: 64 hexadecimal digits",
    ),
    (
        TOKEN.replace("'read'", "'boss'"),
        "token 1: `role` must be one of 'decide', 'read', 'admin'; got 'boss'",
    ),
    (
        TOKEN.replace("'a'", "'a b'"),
        "token 1: `name` must be 1 to 64 letters, digits, dots, dashes and underscores, a letter "
        "or digit first; got 'a b'",
    ),
    (
        TOKEN + TOKEN,
        "token 2: `name` must differ from those of the tokens before; got that of 'a' again",
    ),
]
INSIDE = [  # what stands in the table of a bandit in place of its window, and the sentence
    (
        "window = '7 dogs'",
        "`window` must be a length of time such as '7d', '12h', '30min' or '1d12h'; got '7 dogs'",
    ),
    ("hold_out = 0.1", "'hold_out' is not a setting; did you mean 'holdout'?"),
    ("holdout = 1", "`holdout` must lie in [0, 1); got 1"),
    ("aggregate = 'min'", "`aggregate` must be one of 'sum', 'first', 'last', 'max'; got 'min'"),
    ("shadow = 'Z'", "`shadow` must be one of the arms, ('A', 'B', 7); got 'Z'"),
    ("features = 0", "`features` must lie in [1, 100000]; got 0"),
    (
        "policy = 'ZIT'",
        "`policy` must be a name of zib.mab; got 'ZIT'; did you mean 'ZITS'?",
    ),
    (
        "policy = 'ZITS'\npolicy_parameters = {horizn = 3}",
        "policy_parameters: 'horizn' is not a setting; did you mean 'horizon'?",
    ),
    (
        "policy_parameters = {horizon = 3}",
        "`policy_parameters` must stand beside the `policy` they are for; got none",
    ),
]
ELSE = [  # what is replaced by what, and the sentence
    (
        'database = "live.db"',
        "",
        "`database` must be given, a path such as 'live.db' or a postgresql:// address",
    ),
    (
        '"live.db"',
        "7",
        "`database` must be a path such as 'live.db' or a postgresql:// address, in quotes; got 7",
    ),
    (
        '"live.db"',
        '"mysql://x/y"',
        "`database` must be a path such as 'live.db' or a postgresql:// address; got one that "
        "begins with 'mysql://'",
    ),
    (
        "[bandit.checkout]",
        "[bandit.'check out']",
        'bandit."check out": the name of a bandit stands in addresses and must be 1 to 64 letters, '
        "digits, dots, dashes and underscores, a letter or digit first; got 'check out'",
    ),
    (
        '["A", "B", 7]',
        '["A", true]',
        "bandit.checkout: `arms` must be a list of texts or whole numbers, as in "
        '["A", "B"]; got [\'A\', True]',
    ),
]
MISTAKES = [
    *((LITTLE.replace("[bandit", f"{new}\n[bandit"), words) for new, words in OUTSIDE),
    *((LITTLE.replace('window = "7d"', new), f"bandit.checkout: {words}") for new, words in INSIDE),
    *((LITTLE.replace(old, new), words) for old, new, words in ELSE),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[m[1][:50] for m in MISTAKES])
def test_every_mistake_is_one_sentence_that_says_where(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == f"live.toml: {sentence}"


ODD = (
    "0", "-1", "1.5", "1e400", "nan", "-inf", "true", "''", "' '", "'x'", "'\\u0000'", "[]", "[[]]",
    "[1, 1]", "{}", "{kind = 1}", "{kind = 'ZITS'}", "1979-05-27", "07:32:00", "9" * 30, "9" * 400,
)  # fmt: skip
KEYS = [
    *((f"[server]\n{key} = ", "") for key in Server.declared),
    *((f"[limits]\n{key} = ", "") for key in Limits.declared),
    *((f"[[token]]\n{key} = ", "") for key in Token.declared),
    *((f"{TOKEN}\n[[token]]\n{key} = ", "") for key in Token.declared),
    *((f"{key} = ", "") for key in TABLES),
    *(("", f"{key} = ") for key in BANDIT),
    ("", "policy = 'ZITS'\npolicy_parameters = "),
    ("", "features = 2\npolicy = 'ZITS'\npolicy_parameters = "),
    ("", "policy = 'ZIUCB'\npolicy_parameters.tail = "),
]


@pytest.mark.parametrize(("above", "within"), KEYS, ids=["".join(key)[-30:] for key in KEYS])
def test_whatever_stands_in_a_file_it_is_read_or_refused_in_one_sentence(
    tmp_path: Path, above: str, within: str
) -> None:
    database = "" if above.startswith("database") else 'database = "live.db"'
    arms = "" if within.startswith("arms") else "arms = ['A', 'B', 7]"
    sentences = []
    for odd in ODD:
        head = f"{database}\n{above}{odd if above else ''}\n"
        text = f"{head}[bandit.checkout]\n{arms}\n{within}{odd if within else ''}\n"
        try:
            load(tmp_path, text)
        except ConfigError as error:
            sentences.append(str(error))
    assert sentences
    for sentence in sentences:
        assert sentence.startswith(("live.toml: ", f"{tmp_path / 'live.toml'} is not TOML"))
        assert "\n" not in sentence
        assert len(sentence) <= 300


def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, LITTLE.replace('"7d"', '"7d'))
    assert "live.toml is not TOML" in str(caught.value)
    assert 'window = "7d' in str(caught.value)


def test_there_must_be_a_bandit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"at least one table \[bandit.NAME\]; got none"):
        load(tmp_path, 'database = "live.db"')


def test_a_token_in_place_of_its_hash_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got 12 characters") as caught:
        load(tmp_path, LITTLE + TOKEN.replace(DIGEST, "zib_mysecret"))
    assert "mysecret" not in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no.toml cannot be read: No such file"):
        Config.load(tmp_path / "no.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="bytes.toml cannot be read"):
        Config.load(tmp_path / "bytes.toml")


def test_a_policy_with_parts_is_built(tmp_path: Path) -> None:
    text = '"7d"\npolicy = "ZITS"\npolicy_parameters = {horizon = 100, sigma = 2}'
    config = load(tmp_path, LITTLE.replace('"7d"', text))
    assert config.bandits[0].parameters["policy"] == ZITS(horizon=100, sigma=2)


def of_features(name: str, more: str) -> str:
    return LITTLE.replace(
        '"7d"', f'"7d"\nfeatures = 2\npolicy = "{name}"\npolicy_parameters = {more}'
    )


def test_a_policy_for_all_arms_need_not_say_how_many(tmp_path: Path) -> None:
    config = load(tmp_path, of_features("Adaptive", "{kind = 'ts'}"))
    assert config.bandits[0].parameters["policy"] == Adaptive(n_arms=1, kind="ts")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "policy"),
    [
        ("Adaptive", "{kind = 'ts'}", Adaptive(n_arms=1, kind="ts")),
        ("Disjoint", "{spec = {kind = 'JointUCB'}}", JointUCB()),
    ],
)
def test_a_ledger_gives_it_as_many_arms_as_it_has(
    tmp_path: Path, name: str, more: str, policy: object
) -> None:
    text = of_features(name, more)
    for _ in range(2):  # made, and found again
        with load(tmp_path, text).open_ledgers(background=False) as found:
            assert found["checkout"]._book.configuration.policy == policy


def test_ledgers_are_opened_once_and_arms_of_the_file_are_added(tmp_path: Path) -> None:
    two = LITTLE + "[bandit.mail]\narms = [1]\nwindow = 60\n"
    with load(tmp_path, two).open_ledgers(background=False) as ledgers:
        assert list(ledgers) == ["checkout", "mail"]
        assert list(ledgers["checkout"].arms) == ["A", "B", 7]
        ledgers["checkout"].add_arm("by hand")
        ledgers["mail"].decide("k")
    more = LITTLE.replace("7]", '7, "new"]')
    with load(tmp_path, more).open_ledgers(background=False) as ledgers:
        assert set(ledgers["checkout"].arms) == {"A", "B", 7, "by hand", "new"}
        assert [(change.who, change.detail) for change in ledgers["checkout"].audit()] == [
            ("live.toml", "new"),
            ("", "by hand"),
        ]
    with load(tmp_path, 'database = "live.db"\n[bandit.mail]').open_ledgers(
        background=False
    ) as ledgers:
        assert list(ledgers["mail"].arms) == [1]  # what the database knows need not be said


def test_settings_that_differ_from_those_in_the_database_are_refused(tmp_path: Path) -> None:
    load(tmp_path, LITTLE).open_ledgers(background=False).close()
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, LITTLE.replace("7d", "8d")).open_ledgers(background=False)
    assert str(caught.value).startswith("live.toml: bandit.checkout: `window` must be 604800.0")
    Ledger(tmp_path / "live.db", "checkout", background=False).close()  # nothing was left open
