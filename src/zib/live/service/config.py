"""`Config`: what live.toml says, read and checked before anything is opened."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from urllib.parse import urlsplit

from zib.core import toml
from zib.core.spec import REQUIRED, Declared, converted, real, whole, word
from zib.core.validate import InvalidParameterError, shown
from zib.live.book import MOST_ARMS
from zib.live.database import Database, is_address, open_database
from zib.live.ledger import Ledger, inside
from zib.live.opening import Given
from zib.live.pages import looking
from zib.live.requests import arm_labels
from zib.live.settings import Settings

ROLES = ("decide", "read", "admin")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_WORDS = "1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
WHO = "live.toml"  # stands in the audit where the file made a change
DATABASE = "ZIB_DATABASE"  # the environment variable that replaces `database`
EXAMPLE = (resources.files(__package__) / "example.toml").read_text(encoding="utf-8")
"""The commented example that ``zib serve --init`` writes."""

TABLES = ("database", "server", "limits", "token", "bandit")
# What may stand in [bandit.NAME]; the settings are those of `Ledger`.
BANDIT = ("arms", *Settings.declared, "shadow", "policy", "policy_parameters", "features")


class ConfigError(InvalidParameterError):
    """A live.toml that cannot be served; the message says where and what is wrong."""


def _text(name: str, *, default: Any = ...) -> Any:
    def check(value: Any) -> str:
        if isinstance(value, str) and value.strip() and value.isprintable():
            return value.strip()
        raise InvalidParameterError(f"`{name}` must be text in quotes; got {shown(value)}")

    return converted(check, allowed="text", **({} if default is ... else {"default": default}))


def _name(value: Any) -> str:
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    raise InvalidParameterError(f"`name` must be {NAME_WORDS}; got {shown(value)}")


def _digest(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64}", value):
        return value.lower()
    # what stands there may be the token itself: it is not repeated
    got = f"{len(value)} characters" if isinstance(value, str) else shown(value)
    raise InvalidParameterError(
        f"`sha256` must be 64 hexadecimal digits, those that `zib serve --token` prints; got {got}"
    )


class Server(Declared):
    """[server]: where it listens, and how it stops."""

    host: str = _text("host", default="127.0.0.1")
    port: int = whole(low=0, high=65_535, default=8080)
    workers: int = whole(low=1, high=256, default=1)
    stop_within: float = real(low=0.0, high=3_600.0, default=20.0)


class Limits(Declared):
    """[limits]: what a client may ask for; a rate of 0 stands for none."""

    body: int = whole(low=1_000, high=1_000_000_000, default=1_000_000)
    batch: int = whole(low=1, high=100_000, default=1_000)
    rate: float = real(low=0.0, default=0.0)
    burst: float = real(low=0.0, default=0.0)
    arms: int = whole(low=1, high=MOST_ARMS, default=1_000)
    connections: int = whole(low=1, high=1_000_000, default=20_000)
    header_timeout: float = real(low=0.0, high=3_600.0, closed="right", default=10.0)


class Token(Declared):
    """[[token]]: who may do what; the token itself is nowhere but with its user."""

    name: str = converted(_name, allowed=NAME_WORDS)
    role: str = word(ROLES)
    sha256: str = converted(_digest, allowed="64 hexadecimal digits")

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!r})"


@dataclass(frozen=True)
class BanditConfig:
    """[bandit.NAME]: a bandit, and what `Ledger` is told to make it.

    Attributes
    ----------
    name
        Stands in addresses.
    arms
        Labels, or None: the bandit is in the database already.
    parameters
        Of `Ledger`, where they are given.
    """

    name: str
    arms: tuple[Hashable, ...] | None
    parameters: dict[str, Any]

    def given(self) -> Given:
        """Return the parameters as `Ledger` has checked them, or raise as it would."""
        settings = {k: v for k, v in self.parameters.items() if k in Settings.declared}
        get = self.parameters.get
        return Given(get("policy"), None, get("features"), None, settings)


class Ledgers(dict[str, Ledger]):
    """The ledgers of one database by the names of their bandits; `close` closes it, too."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database

    def close(self) -> None:
        """Close the ledgers, then their database."""
        for ledger in self.values():
            ledger.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True)
class Config:
    """What a service is told.

    Attributes
    ----------
    database
        Path of an SQLite file, or an address of PostgreSQL.
    server, limits
        Where it listens and what a client may ask for.
    tokens
        Without any, everybody on this machine may do everything, and nobody else anything.
    bandits
        In the order of the file.
    path
        The file.
    """

    database: str = field(repr=False)
    server: Server = field(default_factory=Server)
    limits: Limits = field(default_factory=Limits)
    tokens: tuple[Token, ...] = ()
    bandits: tuple[BanditConfig, ...] = ()
    path: Path = Path("live.toml")

    @classmethod
    def load(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> Config:
        """Read and check a file; nothing is opened.

        Parameters
        ----------
        path
            A TOML file. A database file in it is relative to the folder it is in.
        changes
            Settings that replace those of the file, nested as there: ``{"server": {"port": 80}}``.

        Raises
        ------
        ConfigError
            One sentence that says where in the file something is wrong.
        """
        source = Path(path)
        try:
            data = toml.parse(toml.read_text(source), source)
        except InvalidParameterError as error:
            raise ConfigError(str(error)) from None
        try:
            return _config(toml.changed(data, changes or {}), source)
        except InvalidParameterError as error:
            raise ConfigError(f"{source.name}: {error}") from error

    @property
    def is_postgres(self) -> bool:
        """Whether several processes may serve it."""
        return is_address(self.database)

    @property
    def has_password(self) -> bool:
        """Whether the file itself holds the password of the database."""
        return (
            self.is_postgres
            and urlsplit(self.database).password is not None
            and not os.environ.get(DATABASE)
        )

    @property
    def database_words(self) -> str:
        """The database without a password, for people to read."""
        if not self.is_postgres:
            return f"SQLite, {self.database}"
        parts = urlsplit(self.database)
        return f"PostgreSQL, {parts.hostname or 'local'}{parts.path}"

    def open_ledgers(self, *, background: bool = True, room: int | None = None) -> Ledgers:
        """Open the database and every bandit in it, made where they are missing.

        Arms that the file has and the database has not are added. Those that only the database has
        stay: they were added by hand. `background` is as for `Ledger`, `room` as for SQLite.
        """
        room = 0 if room is None and not background else room
        found = Ledgers(open_database(self.database, room=room))
        try:
            for bandit in self.bandits:
                try:
                    found[bandit.name] = self._open(found.database, bandit, background)
                except InvalidParameterError as error:
                    place = toml.joined("bandit", bandit.name)
                    raise ConfigError(f"{self.path.name}: {place}: {error}") from error
        except BaseException:
            found.close()
            raise
        return found

    def _open(self, database: Database, bandit: BanditConfig, background: bool) -> Ledger:
        with looking(database) as connection:
            is_there = connection.rows("SELECT 1 FROM bandit WHERE name = $1", bandit.name)
        parameters = dict(bandit.parameters)
        shadow = parameters.pop("shadow", None)
        arms = None if is_there else bandit.arms
        ledger = Ledger(database, bandit.name, arms=arms, background=background, **parameters)
        inside(ledger).book.most_arms = self.limits.arms
        try:
            for arm in bandit.arms or ():
                if arm not in ledger.arms:
                    self._add(ledger, arm)
            if shadow is not None:
                ledger.set_shadow(shadow, who=WHO)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _add(self, ledger: Ledger, arm: Hashable) -> None:
        try:
            ledger.add_arm(arm, who=WHO)
        except InvalidParameterError:
            if arm not in ledger.arms:  # else another worker has just added it
                raise


@functools.lru_cache(1_000)
def is_loopback(host: str) -> bool:
    """Whether a host is reached from this machine only.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1")
    (True, True, True)
    >>> is_loopback("0.0.0.0"), is_loopback("localhost.example.org")
    (False, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ------------------------------------------------------------------------------------ from tables


def _config(data: dict[str, Any], source: Path) -> Config:
    toml.check_keys(data, "", TABLES)
    server = _made(Server, data.get("server", {}), "server")
    limits = _made(Limits, data.get("limits", {}), "limits")
    tokens = _tokens(data.get("token", []))
    database = _database(data, source)
    if not tokens and not is_loopback(server.host):
        raise InvalidParameterError(
            "server: `host` must be a loopback address such as '127.0.0.1' while there is no "
            f"[[token]] (`zib serve --token` makes one); got {server.host!r}"
        )
    if server.workers > 1 and not is_address(database):
        raise InvalidParameterError(
            "server: `workers` must be 1 with SQLite, which serves one process (use PostgreSQL "
            f"for several); got {server.workers}"
        )
    bandits = toml.as_table(data.get("bandit", {}), "bandit")
    if not bandits:
        raise InvalidParameterError("there must be at least one table [bandit.NAME]; got none")
    return Config(
        database=database,
        server=server,
        limits=limits,
        tokens=tokens,
        bandits=tuple(_bandit(name, table, limits) for name, table in bandits.items()),
        path=source,
    )


def _database(data: Mapping[str, Any], source: Path) -> str:
    given, folder = data.get("database"), source.parent
    name = "database"
    if os.environ.get(DATABASE):
        given, folder, name = os.environ[DATABASE], Path(), DATABASE
    if given is None:
        raise InvalidParameterError(
            "`database` must be given, a path such as 'live.db' or a postgresql:// address"
        )
    if not (isinstance(given, str) and given.strip() and given.isprintable()):
        raise InvalidParameterError(
            f"`{name}` must be a path such as 'live.db' or a postgresql:// address, in quotes; "
            f"got {shown(given)}"
        )
    if is_address(given):
        return given
    if "://" in given:
        raise InvalidParameterError(
            f"`{name}` must be a path such as 'live.db' or a postgresql:// address; "
            f"got one that begins with {given.split('://')[0] + '://'!r}"
        )
    return str((folder / given).absolute())


def _made(kind: type[Any], table: object, place: str) -> Any:
    """Return what a table says, or raise with its place."""
    content = toml.as_table(table, place)
    toml.check_keys(content, place, kind.declared)
    for key, each in kind.declared.items():
        if key not in content and each.default is REQUIRED:
            raise InvalidParameterError(f"{place}: `{key}` must be given: {each.allowed}")
    try:
        return kind(**content)
    except InvalidParameterError as error:
        raise InvalidParameterError(f"{place}: {error}") from error


def _tokens(tables: object) -> tuple[Token, ...]:
    if not isinstance(tables, list):
        raise InvalidParameterError(
            f"token must be tables, each headed [[token]]; got {shown(tables)}"
        )
    found: list[Token] = []
    for number, table in enumerate(tables, 1):
        token = _made(Token, table, f"token {number}")
        for other in found:
            for key in ("name", "sha256"):
                if getattr(token, key) == getattr(other, key):
                    raise InvalidParameterError(
                        f"token {number}: `{key}` must differ from those of the tokens before; "
                        f"got that of {other.name!r} again"
                    )
        found.append(token)
    return tuple(found)


def _bandit(name: str, table: object, limits: Limits) -> BanditConfig:
    place = toml.joined("bandit", name)
    if not NAME.fullmatch(name):
        raise InvalidParameterError(
            f"{place}: the name of a bandit stands in addresses and must be {NAME_WORDS}; "
            f"got {shown(name)}"
        )
    content = dict(toml.as_table(table, place))
    toml.check_keys(content, place, BANDIT)
    try:
        arms = None if "arms" not in content else _arms(content.pop("arms"), limits)
        shadow = content.get("shadow")
        if shadow is not None and arms is not None and shadow not in arms:
            raise InvalidParameterError(
                f"`shadow` must be one of the arms, {shown(arms)}; got {shown(shadow)}"
            )
        _put_policy(content)
        bandit = BanditConfig(name, arms, content)
        given = bandit.given()
        if "window" in content:
            given.configuration()
    except InvalidParameterError as error:
        raise InvalidParameterError(f"{place}: {error}") from error
    return bandit


def _arms(values: object, limits: Limits) -> tuple[Hashable, ...]:
    if not isinstance(values, list) or not all(
        isinstance(label, (str, int)) and not isinstance(label, bool) for label in values
    ):
        raise InvalidParameterError(
            f'`arms` must be a list of texts or whole numbers, as in ["A", "B"]; '
            f"got {shown(values)}"
        )
    labels = arm_labels(values)
    if len(labels) > limits.arms:
        raise InvalidParameterError(
            f"`arms` must hold at most {limits.arms} labels (`arms` in [limits]); got {len(labels)}"
        )
    return labels


# --------------------------------------------------------------------------------------- policies


def _put_policy(content: dict[str, Any]) -> None:
    """Replace the name of a policy and its parameters by the policy."""
    if "policy" not in content:
        if "policy_parameters" in content:
            raise InvalidParameterError(
                "`policy_parameters` must stand beside the `policy` they are for; got none"
            )
        return
    import zib.contextual
    import zib.mab

    room = zib.contextual if "features" in content else zib.mab
    table = toml.as_table(content.pop("policy_parameters", {}), "policy_parameters")
    if getattr(getattr(room, str(content["policy"]), None), "own_models", False):
        table = {"n_arms": 1, **table}  # which a ledger puts right: it knows its arms
    content["policy"] = _built(room, content["policy"], table, "policy", "policy_parameters")


def _built(room: ModuleType, name: object, table: toml.Table, key: str, place: str) -> Any:
    """Return the public thing of this name, made with the parameters of a table."""
    kinds = {each: getattr(room, each) for each in _public(room)}
    if not (isinstance(name, str) and name in kinds):
        near = toml.suggestion(name, kinds) if isinstance(name, str) else ""
        raise InvalidParameterError(
            f"`{key}` must be a name of {room.__name__}; got {shown(name)}{near}"
        )
    kind = kinds[name]
    toml.check_keys(table, place, kind.declared)
    parameters = {
        each: _built(
            room,
            value.get("kind"),
            {k: v for k, v in value.items() if k != "kind"},
            "kind",
            toml.joined(place, each),
        )
        if isinstance(value, Mapping)
        else value
        for each, value in table.items()
    }
    try:
        return kind(**parameters)
    except (InvalidParameterError, TypeError) as error:
        raise InvalidParameterError(f"{place}: {error}") from error


def _public(room: ModuleType) -> Iterable[str]:
    """Return the names of what has declared parameters: policies and their parts."""
    return [name for name in room.__all__ if hasattr(getattr(room, name), "declared")]
