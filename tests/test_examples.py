"""What we show to people who write a policy of their own works as shown."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import zib
import zib.studies
import zib.testing
from zib.core import kernel
from zib.core.entry import interpreted

ROOT = Path(__file__).parents[1]


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _forget_what_was_registered() -> Iterator[None]:
    before = dict(kernel.REGISTRY)
    modules = set(sys.modules)
    yield
    kernel.REGISTRY.clear()
    kernel.REGISTRY.update(before)
    for name in ("live", "my_policy", "outcomes", "similar", "skeleton"):
        if name not in modules:
            sys.modules.pop(name, None)


def test_example_policy_passes_the_suite_and_runs_compiled(seed: int) -> None:
    my_policy = _import_file(ROOT / "examples" / "my_policy.py")
    spec = my_policy.WidthUCB(width=2.0)
    zib.testing.check_policy(spec)
    env = zib.env.GaussianMAB(means=[1.0, 3.0], probs=[0.3, 0.2], sigma=0.5)
    result = zib.simulate([spec], env, horizon=5000, replications=2, seed=seed, progress=False)
    assert result.regret.shape[:2] == (1, 2)


def test_example_policy_refuses_bad_parameters() -> None:
    my_policy = _import_file(ROOT / "examples" / "my_policy.py")
    with pytest.raises(zib.InvalidParameterError, match="`width` must lie in"):
        my_policy.WidthUCB(width=-1.0)
    with pytest.raises(zib.InvalidParameterError, match="`floor` must lie in"):
        my_policy.WidthUCB(floor=0.0)


@pytest.mark.slow
def test_example_of_a_ledger_runs_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with interpreted():
        for n in (100, 200):
            _import_file(ROOT / "examples" / "live.py")
            with zib.live.Ledger("checkout.db", background=False) as ledger:
                assert ledger.check().decisions == n
    assert "Model version" in capsys.readouterr().out


def test_example_with_four_outcomes_runs() -> None:
    outcomes = _import_file(ROOT / "examples" / "outcomes.py")
    with interpreted():
        assert outcomes.learn_by_hand().select() == "free returns"  # the offer nobody has tried
    regret = outcomes.compare(horizon=2000, replications=2)
    assert set(regret) == {"outcomes posterior", "ZI posterior"}
    assert all(0.0 <= value < 2000 for value in regret.values())


def _code_in_contributing() -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_environment_in_contributing_passes_the_suite(tmp_path: Path) -> None:
    file = tmp_path / "similar.py"
    file.write_text(_code_in_contributing()[2], encoding="utf-8")
    zib.testing.check_environment(_import_file(file).SimilarArms(n_arms=3))


def test_skeleton_in_contributing_passes_the_suite(tmp_path: Path) -> None:
    policy, proof, _ = _code_in_contributing()
    file = tmp_path / "skeleton.py"
    file.write_text(policy, encoding="utf-8")
    skeleton = _import_file(file)
    exec(compile(proof, "CONTRIBUTING.md", "exec"), vars(skeleton))


def test_a_class_and_its_name_are_all_that_a_policy_of_ours_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors, saved form, name in study files and label in figures follow from the class."""
    file = tmp_path / "skeleton.py"
    file.write_text(_code_in_contributing()[0], encoding="utf-8")
    policy = _import_file(file).MyPolicy
    monkeypatch.setattr(zib.mab, "MyPolicy", policy, raising=False)
    monkeypatch.setattr(zib.mab, "__all__", [*zib.mab.__all__, "MyPolicy"])

    with pytest.raises(zib.InvalidParameterError, match=r"`width` must lie in \(0, inf\); got -1"):
        policy(width=-1.0)
    spec = policy(width=2.0)
    assert repr(spec) == "MyPolicy(width=2.0)"
    bandit = zib.Bandit(spec, n_arms=2, seed=0)
    bandit.update(bandit.select(), 1.0)
    assert zib.Bandit.loads(bandit.dumps()).spec == spec

    study = zib.studies.parse(
        """
        horizon = 50
        replications = 2
        [environments.two]
        kind = "GaussianMAB"
        means = [1.0, 2.0]
        probs = [0.5, 0.5]
        sigma = 1.0
        [policies.mine]
        kind = "MyPolicy"
        width = 2.0
        [run]
        store = false
        """,
        "study.toml",
    )
    result = zib.studies.run(study)["two"]
    assert result.plot().get_lines()[0].get_label() == "mine"
