"""What a study file means, and what is said about one that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import zib
from zib import studies
from zib.contextual import LeastSquares, Probit
from zib.studies import StudyError, build

MAB = """
horizon = 1_000
[environments.a]
kind = "GaussianMAB"
means = [1.0, 2.0]
probs = [0.1, 0.2]
sigma = 1.0
"""
UCB1 = '[policies.x]\nkind = "UCB1"\n'
FEATURES = """
horizon = 500
[environments.c]
kind = "RandomContextual"
n_arms = 5
dimension = 3
sparsity = 2
"""


def parse(text: str, source: str | Path = "study.toml", **changes):
    return studies.parse(text, source, changes)


def policy(body: str, start: str = MAB):
    return parse(f"{start}[policies.x]\n{body}\n").cases[0].policies["x"]


# ----------------------------------------------------------------------------------- what it means


def test_a_file_says_what_python_would():
    study = parse(f"replications = 7\nseed = 3\ncheckpoints = 10\n{MAB}{UCB1}scale = 4.0\n")
    (case,) = study.cases
    assert case.environment == zib.env.GaussianMAB([1.0, 2.0], [0.1, 0.2], 1.0)
    assert case.policies == {"x": zib.mab.UCB1(scale=4.0)}
    assert study.arguments() == {
        "horizon": 1000, "replications": 7, "seed": 3, "checkpoints": 10,
    }  # fmt: skip
    assert study.name == "study"
    assert study.folder == Path("results/study")
    assert study.how == studies.How("threads", None, None, True, "runs")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('kind = "ZITS"\nsigma = 2', zib.mab.ZITS(horizon=1000, sigma=2)),
        ('kind = "ZITS"\nsigma = 2\nhorizon = 50', zib.mab.ZITS(horizon=50, sigma=2)),
        (
            'kind = "ZIUCB"\ntail = { kind = "SubWeibull", theta = 2.0, size = 1.0 }',
            zib.mab.ZIUCB(horizon=1000, tail=zib.SubWeibull(theta=2.0, size=1.0)),
        ),
        (
            'kind = "Anytime"\nspec = { kind = "ZITS", sigma = 1.0, horizon = 20 }',
            zib.mab.Anytime(zib.mab.ZITS(horizon=20, sigma=1.0)),
        ),
        (
            'kind = "Discounted"\nhalf_life = 100\nspec = { kind = "ZIUCB", sigma = 1.0 }',
            zib.mab.Discounted(zib.mab.ZIUCB(horizon=1000, sigma=1.0), 100),
        ),
        (
            'kind = "OutcomesKLUCB"\nedges = [0.5, 3.0]',
            zib.mab.OutcomesKLUCB(edges=[0.5, 3.0]),
        ),
        ('kind = "ZIPosterior"\nsigma = "none"', zib.mab.ZIPosterior(sigma=None)),
    ],
)
def test_policies_with_parts_and_what_is_filled_in(body, expected):
    assert policy(body) == expected


def test_contextual_policies_with_links_models_and_none():
    made = policy(
        'kind = "ZITS"\nsigma = "none"\nlink = { kind = "Probit" }\n'
        'magnitude = { kind = "LeastSquares", link = "identity" }',
        FEATURES,
    )
    expected = zib.contextual.ZITS(
        horizon=500, sigma=None, link=Probit(), magnitude=LeastSquares(link="identity")
    )
    assert made == expected
    naive = policy('kind = "Naive"\nkind_ = "ts"\nsigma = 1.0', FEATURES)
    assert naive == zib.contextual.Naive(horizon=500, sigma=1.0, kind="ts")
    each = policy('kind = "Disjoint"\nspec = { kind = "JointUCB" }', FEATURES)
    assert each == zib.contextual.Disjoint(spec=zib.contextual.JointUCB(), n_arms=5)
    models = 'occurrence = { kind = "GLMModel" }\nmagnitude = { kind = "GLMModel" }'
    template = policy(f'kind = "Template"\nkind_ = "ts"\n{models}', FEATURES)
    assert template.parameters()["kind"] == "ts"


def environment(body: str):
    return parse(f"horizon = 10\n[environments.e]\n{body}\n{UCB1}").cases[0].environment


def test_environments_by_id_of_laws_and_nested():
    ident = "paper-mab-gaussian-p10-v1"
    assert environment(f'id = "{ident}"') == zib.env.make(ident)
    laws = environment(
        'kind = "MAB"\nlaws = [\n'
        '  { kind = "ZeroInflated", prob = 0.1, law = { kind = "Pareto", mean = 2.0, shape = 3.0 }'
        ' },\n  { kind = "Mixture", probs = [0.5, 0.5], laws = [\n'
        '    { kind = "Constant", value = 0.0 }, { kind = "Gaussian", mean = 1.0, sigma = 2.0 } ]'
        " },\n]"
    )
    assert laws == zib.env.MAB(
        [
            zib.ZeroInflated(zib.env.Pareto(2.0, 3.0), 0.1),
            zib.env.Mixture((zib.env.Constant(0.0), zib.env.Gaussian(1.0, 2.0)), (0.5, 0.5)),
        ]
    )
    assert environment('kind = "RandomMAB"\nfamily = "mixture"\nprobs = [0.1, 0.2]') == (
        zib.env.RandomMAB("mixture", probs=(0.1, 0.2))
    )
    moving = parse(
        "horizon = 10\n[environments.e]\n"
        'kind = "DriftingActions"\nbase = { kind = "RandomContextual", n_arms = 20 }\n'
        '[policies.x]\nkind = "JointUCB"\n'
    )
    assert moving.cases[0].environment == zib.env.DriftingActions(
        zib.env.RandomContextual(n_arms=20)
    )
    assert moving.contextual


def test_every_public_environment_and_policy_can_be_named():
    assert {"GaussianMAB", "LoanMarket", "BootstrapContextual", "PathMAB"} <= set(
        build.environments().kinds
    )
    for room, contextual in ((zib.mab, False), (zib.contextual, True)):
        shelf = build.policies(contextual)
        specs = {
            name
            for name in room.__all__
            if isinstance(getattr(room, name), type) and issubclass(getattr(room, name), zib.Spec)
        }
        assert specs - {"Tail"} <= {*shelf.kinds, *shelf.parts}


def test_bootstrap_from_a_log_next_to_the_file(tmp_path):
    (tmp_path / "data").mkdir()
    rows = "who,won,seen\n" + "a,0,1\na,3.5,0\nb,0,0\nb,2,1\n" * 20
    (tmp_path / "data" / "log.csv").write_text(rows)
    text = """
horizon = 10
[environments.e]
kind = "BootstrapMAB"
log = { file = "data/log.csv", arm = "who", reward = "won" }
"""
    study = parse(text + UCB1, tmp_path / "study.toml")
    assert study.cases[0].environment.labels == ("a", "b")
    np.testing.assert_allclose(study.cases[0].environment.arm_means, [1.75, 1.0])
    assert list(study.logs) == ["data/log.csv"]

    (tmp_path / "data" / "log.csv").write_text(rows.replace("3.5", "3.6"))
    assert parse(text + UCB1, tmp_path / "study.toml").hash != study.hash

    features = text.replace("BootstrapMAB", "BootstrapContextual").replace(
        '"won" }', '"won", context = ["seen"] }'
    )
    contextual = parse(f'{features}[policies.x]\nkind = "JointUCB"\n', tmp_path / "s.toml")
    assert contextual.cases[0].environment.n_features == (4, 4)


def test_hash_is_of_what_decides_the_numbers():
    text = MAB + UCB1
    base = parse(text).hash
    same = [
        text + "# a comment\n",
        text + '[run]\nbackend = "serial"\nworkers = 3\nstore = false\n',
        text + '[output]\nfolder = "elsewhere"\n',
        'name = "other"\nabout = "words"\n' + text,
        "replications = 50\nseed = 0\n" + text,  # what they are anyway
        text.replace("1_000", "1000"),
    ]
    for other in same:
        assert parse(other).hash == base, other
    different = [
        text.replace("1_000", "1_001"),
        text.replace("0.2]", "0.21]"),
        text.replace("policies.x", "policies.y"),
        text + "scale = 2.0\n",
        "seed = 1\n" + text,
        "replications = 51\n" + text,
        "checkpoints = [10, 20]\n" + text,
    ]
    hashes = [parse(other).hash for other in different]
    assert len({base, *hashes}) == len(different) + 1
    assert parse(text, seed=1).hash == parse("seed = 1\n" + text).hash


def test_changes_replace_single_settings():
    text = MAB + UCB1 + '[run]\nbackend = "serial"\nkeep = "summary"\n'
    study = parse(text, seed=9, run={"workers": 2, "store": "there"}, output={"folder": "/x"})
    assert study.seed == 9
    assert study.how == studies.How("serial", 2, None, Path("there"), "summary")
    assert study.folder == Path("/x")
    assert study.changes == ("seed = 9", "run.workers = 2", 'run.store = "there"')


def test_paths_are_relative_to_the_file(tmp_path):
    study = parse(
        MAB + UCB1 + '[run]\nstore = "kept"\n[output]\nfolder = "out"\n', tmp_path / "s.toml"
    )
    assert (study.how.store, study.folder) == (tmp_path / "kept", tmp_path / "out")


def test_the_example_is_a_study():
    study = studies.parse(studies.EXAMPLE, "study.toml")
    assert len(study.cases[0].policies) == 4
    # what is commented out is right as well
    active = "\n".join(
        line[2:] if line.startswith(("# [", "# kind", "# spec", "# id", "# half_life")) else line
        for line in studies.EXAMPLE.splitlines()
    ).replace('kind = "BootstrapMAB"', 'id = "loan-market-v1"')
    more = studies.parse(active, "study.toml")
    assert [case.label for case in more.cases] == ["three subject lines", "paper", "bootstrap"]
    assert "UCB1, discounted" in more.cases[0].policies


def test_the_files_on_the_page_are_studies():
    page = Path(__file__).parents[2] / "docs" / "studies.md"
    files = re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    whole = [text for text in files if "horizon =" in text and "[policies" in text]
    assert [parse(text).contextual for text in whole] == [False, True]


# ------------------------------------------------------------------------------- what is said of it


def said(text: str) -> str:
    with pytest.raises(StudyError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("study.toml")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('kind = "ZI-TS"', ": there is no policy 'ZI-TS'; did you mean 'ZITS'?"),
        (
            'kind = "ZITS"\nsgima = 1',
            ": 'sgima' is not a parameter of ZITS; did you mean 'sigma'?",
        ),
        ('kind = "ZITS"', ": ZITS needs `sigma`"),
        ('kind = "ZITS"\nsigma = -1.0', ": `sigma` must lie in (0, inf); got -1.0"),
        ("sigma = 1", ": the `kind` of this policy is missing"),
        ("kind = 3", ": `kind` must be a name in quotes; got 3"),
        (
            'kind = "Anytime"\nspec = { kind = "ZITS", sigma = 1 }',
            ".spec: ZITS needs `horizon`",
        ),
        (
            'kind = "ZIUCB"\ntail = { kind = "SubWeibul", size = 1 }',
            ".tail: there is no part 'SubWeibul'; did you mean 'SubWeibull'?",
        ),
        (
            'kind = "ZIUCB"\ntail = { kind = "SubWeibull", theta = 2.0, size = -1.0 }',
            ".tail: `size` must lie in (0, inf); got -1.0",
        ),
        ('kind = "JointUCB"', ": JointUCB is a contextual policy"),
        ('kind = "SubGaussian"', ": SubGaussian is a part of policies, not a policy"),
    ],
)
def test_policies_that_do_not_exist_or_cannot_be(body, expected):
    assert f"policies.x{expected}" in said(f"{MAB}[policies.x]\n{body}\n")
    odd = said(f'{MAB}[policies."x, y"]\n{body}\n')
    assert f'policies."x, y"{expected}' in odd


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            'kind = "GausianMAB"',
            ": there is no environment 'GausianMAB'; did you mean 'GaussianMAB'?",
        ),
        ('kind = "Gaussian"\nmean = 1.0', ": Gaussian is a law of rewards, not an environment"),
        (
            'kind = "GaussianMAB"\nmeans = [1, 2]\nprobs = [0.1, 1.2]\nsigma = 1',
            ": `probs` must lie in [0, 1]; got 1.2 at position 1",
        ),
        (
            'id = "paper-mab-gausian-p10-v1"',
            ": there is no environment with the id 'paper-mab-gausian-p10-v1'; did you mean "
            "'paper-mab-gaussian-p10-v1'?",
        ),
        ('id = "loan-market-v1"\nslope = 1', ": an `id` stands for all parameters; got 'slope'"),
        (
            'kind = "MAB"\nlaws = [{ kind = "Constant", valu = 1 }]',
            ".laws[0]: 'valu' is not a parameter of Constant; did you mean 'value'?",
        ),
        (
            'kind = "BootstrapMAB"\nlog = { file = "no.csv", arm = "a", reward = "b" }',
            ".log: there is no file no.csv",
        ),
        (
            'kind = "BootstrapMAB"\nlog = { fil = "no.csv" }',
            ".log: 'fil' is not a setting; did you mean 'file'?",
        ),
        (
            'kind = "BootstrapMAB"\nlog = { file = "no.csv", arm = "a" }',
            ".log: `reward` must be a text in quotes; it is missing",
        ),
        ('kind = "BootstrapMAB"\nlog = "no.csv"', ".log must be a table"),
    ],
)
def test_environments_that_do_not_exist_or_cannot_be(body, expected):
    assert f"environments.e{expected}" in said(f"horizon = 9\n[environments.e]\n{body}\n{UCB1}")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "replicatons = 3",
            "",
            "'replicatons' is not a setting; did you mean 'replications'?",
        ),
        ("replications = 0", "", "`replications` must lie in [1, inf]; got 0"),
        ("checkpoints = [5, 1_001]", "", "`checkpoints` must lie in [1, 1000]; got 1001"),
        ("checkpoints = []", "", "`checkpoints` must hold at least one round"),
        ("name = 3", "", "`name` must be a text in quotes; got 3"),
        ("seed = .5", "", "is not TOML: Invalid value (at line 1, column 8): seed = .5"),
        ("", '[run]\nbackend = "thread"', "run: `backend` must be one of 'serial', 'threads'"),
        ("", "[run]\nworkrs = 2", "run: 'workrs' is not a setting; did you mean 'workers'?"),
        ("", "[run]\nseed = 2", "run: 'seed' must stand above the first [table] of the file"),
        ("", "[run]\nworkers = 0", "run: `workers` must lie in [1, inf]; got 0"),
        ("", '[run]\nkeep = "all"', "run: `keep` must be one of 'runs', 'summary'; got 'all'"),
        ("", '[run]\nscheduler = "tcp://x"', 'run: `scheduler` is for backend = "dask"'),
        ("", "[run]\nstore = 1", "run: `store` must be true, false or a folder; got 1"),
        ("", "[output]\nfoldr = 1", "output: 'foldr' is not a setting; did you mean 'folder'?"),
        ("", "[output]\nfolder = 1", "output: `folder` must be a path in quotes; got 1"),
    ],
)
def test_settings_that_do_not_exist_or_cannot_be(before, after, expected):
    assert expected in said(f"{before}\n{MAB}{UCB1}{after}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (UCB1, "`horizon` is missing"),
        (MAB, "`policies` is missing"),
        (MAB + "[policies]", "`policies` must hold at least one table"),
        (f"horizon = 5\n{UCB1}", "`environments` is missing"),
        (f"horizon = 5\nenvironments = 3\n{UCB1}", "environments must be a table"),
        (FEATURES + UCB1, "policies.x: UCB1 is a policy without features"),
        (
            FEATURES + MAB.replace("horizon = 1_000", "") + UCB1,
            "environments: 'c' is contextual and 'a' is not, so no policy can play in both",
        ),
    ],
)
def test_studies_without_players_or_with_two_sorts_of_them(text, expected):
    assert expected in said(text)


def test_a_name_far_from_all_gets_the_list():
    message = said(MAB + '[policies.x]\nkind = "qqqqqq"')
    assert "there is no policy 'qqqqqq'; known: Anytime, BetaTS, " in message


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(StudyError, match="cannot be read: No such file"):
        studies.read(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="cannot be read"):
        studies.read(tmp_path / "binary.toml")
