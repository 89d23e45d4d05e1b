"""``zib arena``: messages, exit codes, files; and policies that a line of text names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import zib
from zib.cli import app
from zib.core.validate import InvalidParameterError
from zib.studies.naming import named

EXAMPLE = Path(__file__).parent.parent / "examples" / "my_policy.py"


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["arena", *map(str, arguments)], env={"COLUMNS": "200"})


def test_list_shows_the_worlds() -> None:
    found = invoke("--list", "--worlds", "development", "--kinds", "odd,many")
    assert found.exit_code == 0
    assert "odd: one arm unlike the others" in found.output
    assert "  jackpot: four arms pay often" in found.output
    assert found.output.strip().endswith("17 worlds")
    drawn = invoke("--list", "--n", 5, "--seed", 3, "--kinds", "plain")
    assert "5 worlds; those that are drawn come from seed 3" in drawn.output
    assert invoke("--list", "--n", 5, "--seed", 3, "--kinds", "plain").output == drawn.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--n", 0], "`n` must lie in [1, 10000]; got 0"),
        (["--kinds", "easy"], "`kinds` must be one of"),
        (["--horizon", 1], "`horizon` must lie in [2, 1000000]; got 1"),
        (["--replications", 1], "`replications` must lie in [4, 10000000]; got 1"),
        (["--target", 0.5], "`target` must lie in [1, inf); got 0.5"),
        (["ZIIMAD"], "there is no policy 'ZIIMAD'"),
        (["ZIIMED(sgma=1)"], "'sgma' is not a parameter of ZIIMED"),
        (["ZIIMED(sigma=-1)"], "`sigma` must lie in (0, inf)"),
        (["nothing.py:My"], "`policy` must name a file that exists; got 'nothing.py'"),
        ([f"{EXAMPLE}:Nobody"], "it has no 'Nobody'"),
        (["1 +"], "`policy` must be NAME, NAME(parameter=value, ...) or FILE.py:NAME"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, words: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = invoke(*arguments, "--seed", 1, "--kinds", "plain") if "--kinds" not in arguments else (
        invoke(*arguments)
    )  # fmt: skip
    assert found.exit_code == 2
    assert words in found.output
    assert "Traceback" not in found.output


@pytest.mark.slow
def test_a_run_ranks_and_writes_a_page(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = invoke(
        f"{EXAMPLE}:WidthUCB(width=1)", "ZITS(sigma=1)", "--n", 2, "--seed", 7, "--kinds", "plain",
        "--replications", 4, "--horizon", 200, "--workers", 1,
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "seed 7" in found.output
    assert "WidthUCB(width=1)" in found.output
    page = (tmp_path / "results" / "arena" / "arena.html").read_text(encoding="utf-8")
    assert "ZITS(sigma=1): " in page
    assert "--seed 7" in page


# ------------------------------------------------------------------------------------------- names


def test_names_of_policies() -> None:
    assert named("ZIIMED").for_world(9, 2) == zib.mab.ZIIMED()
    assert named("ZIIMED").label == "ZI-IMED"
    assert named("zib.mab.ZITS(sigma=2)").for_world(77, 2) == zib.mab.ZITS(horizon=77, sigma=2.0)
    assert named("UCB1(5)").label == "UCB1(5)"
    wrapped = named("Discounted(ZIPosterior(sigma=None, unseen='pooled'), half_life=100)")
    assert wrapped.for_world(9, 2) == zib.mab.Discounted(zib.mab.ZIPosterior(), 100)
    context = zib.contextual
    assert named("LaplaceTS(prior='learned')").for_world(9, 2) == context.LaplaceTS(prior="learned")
    both = named("Disjoint(spec=contextual.ZITS(sigma=1))").for_world(50, 4)
    assert both == context.Disjoint(spec=context.ZITS(horizon=50, sigma=1.0), n_arms=4)
    only = named("contextual.ZITS(sigma=1)").for_world(50, 4)
    assert only == context.ZITS(horizon=50, sigma=1.0)


def test_names_in_files(tmp_path: Path) -> None:
    made = named(f"{EXAMPLE}:WidthUCB(width=3)")
    assert made.for_world(9, 2).width == 3.0
    assert named(f"{EXAMPLE}:WidthUCB").label == "width UCB"
    other = tmp_path / "other.py"
    other.write_text(
        "import zib\n"
        "def mine(world):\n    return zib.mab.UCB1(scale=float(world.n_arms))\n"
        "ready = zib.mab.UCB1(scale=2.0)\nnothing = 3\n",
        encoding="utf-8",
    )
    assert named(f"{other}:mine").label == "mine"
    assert named(f"{other}:ready").what == zib.mab.UCB1(scale=2.0)
    with pytest.raises(InvalidParameterError, match="`policy` must be a policy, or a function"):
        named(f"{other}:nothing")
    with pytest.raises(InvalidParameterError, match="parameters belong to a class of policies"):
        named(f"{other}:mine(1)")
    broken = tmp_path / "broken.py"
    broken.write_text("1/0\n", encoding="utf-8")
    with pytest.raises(InvalidParameterError, match="cannot be imported: ZeroDivisionError"):
        named(f"{broken}:x")


@pytest.mark.parametrize("text", ["ZIIMED(sigma=a)", "ZIIMED(**{})", "ZIIMED(1, 2, 3, 4, 5, 6, 7)"])
def test_wrong_parameters_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        named(text)
