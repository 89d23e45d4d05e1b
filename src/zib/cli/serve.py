"""``zib serve``: a ledger behind HTTP, with its page."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.program import app, refuse, write_example

if TYPE_CHECKING:
    from zib.live.service.config import Config

DEFAULT = "live.toml"
PACKAGES = ("starlette", "uvicorn", "msgspec", "prometheus_client")  # of the extra `serve`
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # where to reach what listens everywhere
PORT_WORDS = {
    errno.EADDRINUSE: "is taken by another program: choose another with --port",
    errno.EACCES: "may not be used by this user: choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "is not an address of this machine: choose another with --host",
}


@app.command()
def serve(
    file: Annotated[
        str | None, typer.Argument(help="What to serve, a TOML file.", metavar="LIVE.toml")
    ] = None,
    init: Annotated[
        bool,
        typer.Option("--init", help=f"Write a commented example ({DEFAULT} by default) and stop."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the file and the database, say what is there, stop."),
    ] = False,
    token: Annotated[
        bool, typer.Option("--token", help="Make a token, print it and its table, and stop.")
    ] = False,
    role: Annotated[
        str, typer.Option(help="With --token: decide, read, or admin, which may do both.")
    ] = "decide",
    name: Annotated[
        str | None, typer.Option(help="With --token: whose it is; the role by default.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a demo with simulated traffic; needs no file.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; replaces that of the file.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; replaces that of the file.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; more than one with PostgreSQL only.")
    ] = None,
) -> None:
    """Serve bandits over HTTP: decisions, events, and a page that shows what they are worth.

    The first time: `zib serve --init`, then `zib serve live.toml`, and open the address that it
    prints. Only this machine is served unless the file has tokens. Ctrl-C, or SIGTERM, finishes
    what is under way and stops; nothing that was acknowledged is lost, even if it is killed.
    """
    if init:
        _write_example(Path(file or DEFAULT))
        return
    if token:
        _print_token(role, name or role)
        return
    given = {"host": host, "port": port, "workers": workers}
    changes = {"server": {key: value for key, value in given.items() if value is not None}}
    if demo:
        _need_packages("httpx")
        _demo(changes)
        return
    if file is None:
        refuse(
            f"name a file, as in `zib serve {DEFAULT}`; --init writes one to start from, and "
            "--demo needs none"
        )
    if not Path(file).is_file():
        refuse(f"there is no file {file}; `zib serve --init {file}` writes one to start from")
    with _refusing():
        from zib.live.service.config import Config

        config = Config.load(file, changes)
    if check:
        with _refusing():
            _check(config)
        return
    _need_packages()
    _run(config)


# ------------------------------------------------------------------------------------- starting it


def _run(config: Config, play: Callable[[str], None] | None = None) -> None:
    """Serve until told to stop; what goes wrong before is said in one sentence."""
    from zib.live.service.access import SESSION_KEY
    from zib.live.service.server import serve as run

    os.environ.setdefault(SESSION_KEY, secrets.token_hex(32))  # its workers inherit it

    def started(address: str) -> None:
        _announce(config, address)
        if play is not None:
            play(address)

    with _refusing():
        try:
            run(config, started=started)
        except KeyboardInterrupt:
            pass
        except OSError as error:
            server = config.server
            words = PORT_WORDS.get(error.errno or 0)
            if isinstance(error, socket.gaierror):
                words = "is not known: choose another with --host"
            if words is None:
                raise
            refuse(f"{server.host} port {server.port} {words}")
    typer.echo("Stopped.", err=True)


def _announce(config: Config, address: str) -> None:
    for everywhere, here in EVERYWHERE.items():
        address = address.replace(f"//{everywhere}:", f"//{here}:")
    typer.echo(f"Page:      {address}/")
    typer.echo(f"Database:  {config.database_words}")
    typer.echo(f"Bandits:   {', '.join(bandit.name for bandit in config.bandits)}")
    typer.echo(f"Access:    {_access_words(config)}")
    if config.server.workers > 1:
        typer.echo(f"Workers:   {config.server.workers}")
    typer.echo("Ctrl-C stops it.")
    if (words := _unsafe(config)) is not None:
        typer.secho(f"warning: {words}", fg="yellow", err=True)


def _access_words(config: Config) -> str:
    if not config.tokens:
        return "no tokens; everybody on this machine may do everything, and nobody else anything"
    from zib.live.service.config import ROLES

    by_role = {role: [t.name for t in config.tokens if t.role == role] for role in ROLES}
    return "; ".join(f"{role}: {', '.join(names) or 'nobody'}" for role, names in by_role.items())


def _unsafe(config: Config) -> str | None:
    """Return what is most unsafe about a service, if anything is."""
    from zib.live.service.config import is_loopback

    if not is_loopback(config.server.host):
        return (
            f"tokens and data travel in clear text on {config.server.host}: listen on 127.0.0.1 "
            "behind a proxy with TLS"
        )
    others = stat.S_IRWXG | stat.S_IRWXO
    if config.has_password and config.path.is_file() and config.path.stat().st_mode & others:
        return (
            f"{config.path} holds the password of the database and is open to other users: "
            f"`chmod 600 {config.path}`, or set ZIB_DATABASE instead"
        )
    return None


def _need_packages(*more: str) -> None:
    missing = [package for package in (*PACKAGES, *more) if find_spec(package) is None]
    if missing:
        refuse(
            f"`zib serve` needs {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'zib[serve]'"
        )


def _demo(changes: dict[str, Any]) -> None:
    from zib.live.service.demo import staged

    with _refusing(), staged(changes, lambda words: typer.echo(words)) as (config, play):
        _run(config, play)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn what a user can put right into one sentence."""
    from zib.core.validate import InvalidParameterError
    from zib.live import LedgerError

    try:
        yield
    except (InvalidParameterError, LedgerError) as error:
        refuse(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        refuse(f"{place}{error.strerror or error}")


# ------------------------------------------------------------------------------ without starting it


def _write_example(path: Path) -> None:
    from zib.live.service.config import EXAMPLE

    write_example(path, EXAMPLE, f"zib serve {path}")


def _print_token(role: str, name: str) -> None:
    from zib.core.validate import InvalidParameterError
    from zib.live.service.access import new_token
    from zib.live.service.config import Token

    token, digest = new_token()
    try:
        made = Token(name=name, role=role, sha256=digest)
    except InvalidParameterError as error:
        refuse(str(error))
    typer.echo("The token, for whoever uses the service; it is shown once and kept nowhere:\n")
    typer.echo(f"  {token}\n")
    typer.echo(f"Its table, for {DEFAULT}; it takes effect when the service is started again:\n")
    typer.echo(f'[[token]]\nname = "{made.name}"\nrole = "{made.role}"\nsha256 = "{digest}"')


def _check(config: Config) -> None:
    from zib.live.service.examine import examine

    typer.echo(f"{config.path} is in order.")
    typer.echo(f"Address:   {config.server.host} port {config.server.port}")
    typer.echo(f"Access:    {_access_words(config)}")
    typer.echo(f"Database:  {config.database_words}")
    for name, words in examine(config).items():
        typer.echo(f"Bandit:    {name}, {words}")
    if (unsafe := _unsafe(config)) is not None:
        typer.secho(f"warning: {unsafe}", fg="yellow", err=True)
