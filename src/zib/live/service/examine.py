"""What live.toml and its database say to each other, before anything is started."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from zib.core import toml
from zib.core.validate import InvalidParameterError
from zib.live.database import Connection
from zib.live.pages import bandit_of, looking
from zib.live.service.config import BanditConfig, Config, ConfigError


def examine(config: Config) -> dict[str, str]:
    """Return in words what there is of every bandit, or raise where it could not be served.

    Nothing is changed, and a service may be using the database.
    """
    if not config.is_postgres and not Path(config.database).exists():
        return {bandit.name: _new(config, bandit) for bandit in config.bandits}
    with looking(config.database) as connection:
        return {bandit.name: _found(config, bandit, connection) for bandit in config.bandits}


def _found(config: Config, bandit: BanditConfig, connection: Connection) -> str:
    if not connection.rows("SELECT 1 FROM bandit WHERE name = $1", bandit.name):
        return _new(config, bandit)
    kept = bandit_of(connection, bandit.name)
    try:
        bandit.given().refuse_other(bandit.name, kept.configuration)
    except InvalidParameterError as error:
        raise _placed(config, bandit, str(error)) from error
    labels = [arm.label for arm in kept.arms.values()]
    new = [label for label in bandit.arms or () if label not in labels]
    sql = "SELECT COUNT(*) FROM decision WHERE bandit = $1"
    words = f"{_arms(labels)} and {int(connection.rows(sql, kept.id)[0][0]):,} decisions"
    return f"{words}; {_arms(new)} to be added: {', '.join(map(str, new))}" if new else words


def _new(config: Config, bandit: BanditConfig) -> str:
    if bandit.arms is None:
        raise _placed(config, bandit, "`arms` must be given to make it; it is in no database yet")
    try:
        bandit.given().configuration()
    except InvalidParameterError as error:
        raise _placed(config, bandit, str(error)) from error
    return f"not there yet: it will be made with {_arms(bandit.arms)}"


def _arms(labels: list[Hashable] | tuple[Hashable, ...]) -> str:
    return f"{len(labels)} arm{'' if len(labels) == 1 else 's'}"


def _placed(config: Config, bandit: BanditConfig, sentence: str) -> ConfigError:
    return ConfigError(f"{config.path.name}: {toml.joined('bandit', bandit.name)}: {sentence}")
