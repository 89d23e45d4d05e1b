"""``zib serve`` as a user sees it: what it writes, checks and refuses."""

import errno
import hashlib
import re
import socket
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from zib.cli import app
from zib.cli import serve as module
from zib.live import LedgerError
from zib.live.service.config import EXAMPLE, Config, Token


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZIB_DATABASE", raising=False)
    monkeypatch.setenv("ZIB_SESSION_KEY", "a key of the tests")
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["serve", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_what_is_missing_is_said_with_what_to_do() -> None:
    assert "--init writes one to start from" in refused()
    assert refused("x.toml") == (
        "there is no file x.toml; `zib serve --init x.toml` writes one to start from"
    )


def test_an_example_is_written_once(folder: Path) -> None:
    assert run("--init").stdout == "Wrote live.toml. Next: zib serve live.toml\n"
    assert (folder / "live.toml").read_text(encoding="utf-8") == EXAMPLE
    assert refused("--init") == "live.toml exists; nothing was written"
    assert "cannot write no/x.toml" in refused("--init", "no/x.toml")


def test_a_token_is_printed_with_its_table() -> None:
    printed = run("--token", "--role", "admin", "--name", "boss").stdout
    token = re.search(r"^  (zib_\S+)$", printed, re.MULTILINE)
    assert token is not None
    (table,) = tomllib.loads(printed[printed.index("[[token]]") :])["token"]
    assert Token(**table) == Token(
        name="boss", role="admin", sha256=hashlib.sha256(token[1].encode()).hexdigest()
    )
    assert refused("--token", "--role", "boss") == (
        "`role` must be one of 'decide', 'read', 'admin'; got 'boss'"
    )


def test_check_says_what_is_there_and_what_would_be_made(folder: Path) -> None:
    run("--init")
    result = run("live.toml", "--check")
    assert result.exit_code == 0, result.stderr
    assert "Bandit:    checkout, not there yet: it will be made with 3 arms" in result.stdout
    assert not (folder / "live.db").exists()
    with Config.load("live.toml").open_ledgers(background=False) as ledgers:
        ledgers["checkout"].decide("k")
        Path("live.toml").write_text(EXAMPLE.replace('"C"]', '"C", 4]'))
        # beside the one who has it open
        assert "checkout, 3 arms and 1 decisions; 1 arm to be added: 4" in (
            run("live.toml", "--check").stdout
        )
    Path("live.toml").write_text(EXAMPLE.replace('"7d"', '"8d"'))
    assert refused("live.toml", "--check").startswith(
        "live.toml: bandit.checkout: `window` must be 604800.0, which the bandit"
    )
    Path("live.toml").write_text('database = "live.db"\n[bandit.other]\n')
    assert "`arms` must be given to make it" in refused("live.toml", "--check")


def test_options_replace_what_the_file_says() -> None:
    run("--init")
    assert "Address:   ::1 port 99\n" in (
        run("live.toml", "--check", "--host", "::1", "--port", 99).stdout
    )
    assert refused("live.toml", "--host", "0.0.0.0").startswith(
        "live.toml: server: `host` must be a loopback address"
    )
    assert "`workers` must be 1 with SQLite" in refused("live.toml", "--workers", 2)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run("--init")
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "uvicorn" else name)
    assert refused("live.toml") == (
        "`zib serve` needs uvicorn, which is not installed: pip install 'zib[serve]'"
    )


# ------------------------------------------------------------------- what is said around the server


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Put a function in the place of the server."""

    def put(run: Any) -> None:
        server = types.ModuleType("zib.live.service.server")
        server.serve = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "zib.live.service.server", server)
        monkeypatch.setattr(module, "_need_packages", lambda *names: None)

    run_example = CliRunner().invoke(app, ["serve", "--init"])
    assert run_example.exit_code == 0
    return put


def test_the_address_and_what_was_opened_are_printed(served: Any, folder: Path) -> None:
    served(lambda config, started: started("http://127.0.0.1:1234"))
    result = run("live.toml")
    assert result.exit_code == 0, result.stderr
    assert "Page:      http://127.0.0.1:1234/\n" in result.stdout
    assert f"Database:  SQLite, {folder / 'live.db'}\n" in result.stdout
    assert "Bandits:   checkout\n" in result.stdout
    assert "Access:    no tokens; everybody on this machine" in result.stdout
    assert "warning" not in result.stderr


def shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def test_tokens_are_listed_by_role_and_clear_text_is_warned_of(served: Any) -> None:
    served(lambda config, started: started(f"http://{shown(config.server.host)}:80"))
    table = '[[token]]\nname = "shop"\nrole = "decide"\nsha256 = "' + "0" * 64 + '"\n'
    Path("live.toml").write_text(EXAMPLE + table)
    result = run("live.toml", "--host", "0.0.0.0")
    assert "Page:      http://127.0.0.1:80/\n" in result.stdout
    assert "Access:    decide: shop; read: nobody; admin: nobody\n" in result.stdout
    assert result.stderr.startswith("warning: tokens and data travel in clear text on 0.0.0.0")
    assert "http://[::1]:80/" in run("live.toml", "--host", "::").stdout


def test_a_password_that_others_can_read_is_warned_of(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(lambda config, started: started("http://127.0.0.1:80"))
    text = EXAMPLE.replace('"live.db"', '"postgresql://shop:secret@db/live"')
    Path("live.toml").write_text(text)
    Path("live.toml").chmod(0o644)
    result = run("live.toml")
    assert "chmod 600 live.toml" in result.stderr
    assert "secret" not in result.output
    Path("live.toml").chmod(0o600)
    assert "warning" not in run("live.toml").stderr


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "127.0.0.1 port 8080 is taken by another program: choose another with --port",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), "above 1023 with --port"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "is not an address of this machine"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "is not known: choose another"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (LedgerError("live.db is in use already"), "live.db is in use already"),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Exception) else None,
)
def test_what_stops_a_start_is_one_sentence(served: Any, error: Exception, sentence: str) -> None:
    def fail(config: Config, started: Any) -> None:
        raise error

    served(fail)
    assert sentence in refused("live.toml")


def test_an_interrupt_is_no_failure(served: Any) -> None:
    def stopped(config: Config, started: Any) -> None:
        raise KeyboardInterrupt

    served(stopped)
    assert run("live.toml").exit_code == 0
