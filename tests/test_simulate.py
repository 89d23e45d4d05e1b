from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import zib
from zib import InvalidParameterError, SavedStateError, mab
from zib.core.rng import Role, stream
from zib.sim import loop

ENV = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
SPECS = {"ts": mab.ZITS(horizon=400, sigma=1.0), "ucb": mab.ZIUCB(horizon=400, sigma=1.0)}


def run(specs=SPECS, env=ENV, **options):
    options = {"horizon": 400, "replications": 6, "progress": False, **options}
    return zib.simulate(specs, env, **options)


@pytest.fixture(scope="module")
def result() -> zib.Results:
    return run()


def test_shapes_and_bookkeeping(result) -> None:
    assert result.regret.shape == result.reward.shape == (2, 6, 200)
    assert result.pulls.shape == (2, 6, 3)
    assert (result.pulls.sum(axis=2) == 400).all()
    gaps = ENV.arm_means.max() - ENV.arm_means
    assert np.allclose(result.regret[:, :, -1], (result.pulls * gaps).sum(axis=2))
    assert (np.diff(result.regret, axis=2) >= 0).all()
    assert result.complete


def test_results_do_not_depend_on_backend_or_workers(result) -> None:
    for options in (
        {"backend": "serial"},
        {"backend": "threads", "workers": 3},
        {"backend": "processes", "workers": 2},
    ):
        again = run(**options)
        assert np.array_equal(again.regret, result.regret), options
        assert np.array_equal(again.reward, result.reward), options


def test_results_of_a_policy_do_not_depend_on_the_others(result) -> None:
    alone = run({"ucb": SPECS["ucb"]})
    assert np.array_equal(alone.regret[0], result.regret[1])


def test_more_replications_and_other_checkpoints_extend_what_was_there(result) -> None:
    more = run(replications=8, checkpoints=[100, 250])
    assert more.checkpoints.tolist() == [100, 250, 400]
    assert np.array_equal(more.regret[:, :6, -1], result.regret[:, :, -1])
    other = run(seed=1)
    assert not np.array_equal(other.regret, result.regret)


def test_jth_pull_of_an_arm_pays_the_same_to_every_policy(monkeypatch) -> None:
    """Record what each policy is paid and compare with the arm's own stream."""
    for spec in SPECS.values():
        paid: dict[int, list[float]] = {0: [], 1: [], 2: []}
        original = zib.core.kernel.update

        def record(spec, state, arm, reward, paid=paid, original=original):
            paid[int(arm)].append(reward)
            original(spec, state, arm, reward)

        monkeypatch.setattr(loop.kernel, "update", record)
        loop.play(spec, ENV, np.array([1500]), 0, 4, compiled=False)
        monkeypatch.undo()
        for arm, rewards in paid.items():
            source, wanted, size = stream(0, Role.ENVIRONMENT, 4, arm), [], 64
            while len(wanted) < len(rewards):
                wanted.extend(ENV.sample(arm, source, size))
                size *= 4
            assert rewards == wanted[: len(rewards)]


def test_instances_are_redrawn_per_replication_and_shared_by_policies() -> None:
    generator = zib.env.make("paper-mab-gaussian-p30-v1")
    a = generator.instance(stream(0, Role.INSTANCE, 0))
    b = generator.instance(stream(0, Role.INSTANCE, 1))
    assert not np.array_equal(a.arm_means, b.arm_means)
    found = run({"a": mab.UCB1(), "b": mab.UCB1()}, generator, replications=3)
    assert np.array_equal(found.regret[0], found.regret[1])


def test_strong_baseline_gets_the_true_sizes() -> None:
    spec = mab.UCB(horizon=400, sigma=1.0, size="true")
    assert np.isfinite(run({"strong": spec}).regret).all()
    state = zib.core.kernel.init(spec, 3)
    loop.give_true_sizes(spec, state, ENV)
    tau = np.sqrt(zib.theory.product_variance_proxy(ENV.magnitudes, ENV.probs, 1.0))
    assert np.allclose(state.own.true_size, tau)


@pytest.mark.slow
def test_strong_baseline_gets_the_true_sizes_inside_another_policy() -> None:
    spec = mab.Anytime(spec=mab.UCB(horizon=400, sigma=1.0, size="true"))
    assert np.isfinite(run({"doubling": spec}).regret).all()


def test_inflated_value_shifts_rewards_and_not_regret() -> None:
    laws = [zib.ZeroInflated(zib.env.Gaussian(m, 1.0), p) for m, p in ((1.0, 0.3), (2.0, 0.4))]
    shifted = [
        zib.ZeroInflated(zib.env.Gaussian(m - 2.0, 1.0), p, inflated=-2.0)
        for m, p in ((1.0, 0.3), (2.0, 0.4))
    ]
    a, b = (run({"ts": SPECS["ts"]}, zib.env.MAB(x)) for x in (laws, shifted))
    assert np.allclose(a.regret, b.regret)
    assert np.allclose(a.reward - 2.0 * a.checkpoints, b.reward)


def test_memory_does_not_grow_with_the_horizon() -> None:
    import tracemalloc

    peaks = []
    for horizon in (20_000, 2_000_000):
        tracemalloc.start()
        zib.simulate(
            [mab.UCB1()],
            ENV,
            horizon=horizon,
            replications=1,
            checkpoints=10,
            progress=False,
            backend="serial",
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2_000_000, peaks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "`horizon` must lie in"),
        ({"horizon": 10.5}, "`horizon` must be a whole number"),
        ({"replications": 0}, "`replications` must lie in"),
        ({"seed": -1}, "`seed` must lie in"),
        ({"backend": "cloud"}, "`backend` must be one of 'serial'"),
        ({"workers": 0}, "`workers` must lie in"),
        ({"checkpoints": [500]}, "`checkpoints` must lie in"),
        ({"checkpoints": 0}, "`checkpoints` must lie in"),
        ({"specs": []}, "at least one policy"),
        ({"specs": [mab.UCB1(), mab.UCB1()]}, "twice"),
        ({"env": 3}, "`env` must be an environment"),
    ],
)
def test_bad_input(options, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        run(**options)


def test_progress_can_be_a_function() -> None:
    told: list[tuple[int, int]] = []
    run(progress=lambda done, total: told.append((done, total)), replications=2, checkpoints=5)
    steps = sorted(done for done, _ in told)
    assert {total for _, total in told} == {20}
    assert len(set(steps)) == len(steps) >= 4  # each of the four runs says something
    assert steps[-1] == 20


class Failing(zib.env.GaussianMAB):
    """Pays well for some time, then breaks."""

    calls = 0
    broken: object = None

    def sample(self, arm, rng, n):
        Failing.calls += 1
        if Failing.calls > 60:
            if self.broken is None:
                raise OSError("the database is gone")
            return np.full(n, self.broken)
        return super().sample(arm, rng, n)


@pytest.mark.parametrize(("broken", "cause"), [(None, OSError), (np.nan, InvalidParameterError)])
@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_run_that_fails_loses_nothing_finished(backend, broken, cause) -> None:
    env = Failing(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
    Failing.calls, Failing.broken = 0, broken
    with pytest.raises(zib.SimulationError, match="are in the attribute `partial`") as caught:
        run({"ucb": SPECS["ucb"]}, env, replications=40, backend=backend, workers=2)
    assert isinstance(caught.value.__cause__, cause)
    partial = caught.value.partial
    done = partial.finished[0]
    assert 0 < done.sum() < 40
    whole = run({"ucb": SPECS["ucb"]}, replications=40)
    assert np.array_equal(partial.regret[0, done], whole.regret[0, done])
    Failing.calls = 1000
    with pytest.raises(cause):  # nothing is finished: the error itself
        run({"ucb": SPECS["ucb"]}, env, replications=2, backend=backend)


def test_true_sizes_need_an_environment_that_knows_them() -> None:
    class Bare:
        n_arms = 2
        arm_means = np.array([0.0, 1.0])

        def instance(self, rng):
            return self

        def sample(self, arm, rng, n):
            return np.full(n, float(arm))

    with pytest.raises(InvalidParameterError, match="`reward_sizes`"):
        run([mab.UCB(horizon=10, sigma=1.0, size="true")], Bare())
    assert run([mab.UCB1()], Bare(), replications=1).complete


def test_lists_are_labelled_and_unknown_specs_refused() -> None:
    found = run([mab.UCB1(scale=1.0), mab.UCB1(scale=2.0), mab.UCBV()], replications=1)
    assert found.labels == ("UCB1(scale=1.0)", "UCB1(scale=2.0)", "UCB-V")
    with pytest.raises(TypeError, match="not a registered policy"):
        run([3])


@pytest.mark.parametrize(
    "backend",
    ["serial", *(pytest.param(name, marks=pytest.mark.slow) for name in ("threads", "processes"))],
)
def test_interrupted_run_keeps_what_is_finished(backend, tmp_path) -> None:
    code = f"""
    import os, signal, threading, time, warnings
    import numpy as np, zib

    class Slow(zib.env.GaussianMAB):
        def sample(self, arm, rng, n):
            time.sleep(0.02)
            return super().sample(arm, rng, n)

    if __name__ == "__main__":
        # a shell that starts the tests in the background makes them ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
        env = Slow(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
        spec = zib.mab.UCB1()
        zib.simulate([spec], env, horizon=10, replications=1, progress=False)
        wait = 6.0 if "{backend}" == "processes" else 1.5
        threading.Timer(wait, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = zib.simulate([spec], env, horizon=400, replications=3000, progress=False,
                                  backend="{backend}", workers=2)
        done = int(result.finished.sum())
        assert 0 < done < 3000, done
        assert not result.complete and "interrupted" in repr(result)
        assert any("finished and kept" in str(w.message) for w in caught)
        assert np.isfinite(result.mean()).all()
        result.save("partial.npz")
        print(done == int(zib.Results.load("partial.npz").finished.sum()))
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    assert signal.SIGINT


# -------------------------------------------------------------------------------------- results


def test_summaries_against_numpy(result) -> None:
    x = result.regret[:, :, -1]
    assert np.allclose(result.mean()[:, -1], x.mean(axis=1))
    assert np.allclose(result.standard_error()[:, -1], x.std(axis=1, ddof=1) / np.sqrt(6))
    assert np.allclose(result.quantile(0.25)[:, -1], np.quantile(x, 0.25, axis=1))
    from scipy import stats

    low, high = result.interval(0.9)
    wanted = stats.t.interval(0.9, 5, loc=x.mean(axis=1), scale=stats.sem(x, axis=1))
    assert np.allclose([low[:, -1], high[:, -1]], wanted)
    apart = result.difference("ts", "ucb", level=0.9)
    test = stats.ttest_rel(x[0], x[1]).confidence_interval(0.9)
    assert apart.final[1:] == pytest.approx([test.low, test.high])
    with pytest.raises(InvalidParameterError, match="`second` must be one of 'ts', 'ucb'"):
        result.difference("ts", "nobody")


def test_frames(result) -> None:
    frame = result.to_frame()
    assert len(frame) == 2 * 6 * 200
    last = frame[frame["round"] == 400].groupby("policy")["regret"].mean()
    assert last["ts"] == pytest.approx(result.mean()[0, -1])
    assert list(result.summary()["policy"]) == ["ts", "ucb"]
    assert "regret" in repr(result)


def test_files(tmp_path, result) -> None:
    path = tmp_path / "result.npz"
    result.save(path)
    again = zib.Results.load(path)
    assert np.array_equal(again.regret, result.regret)
    assert again.labels == result.labels
    assert again.provenance == result.provenance
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SavedStateError, match="damaged"):
        zib.Results.load(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(SavedStateError):
        zib.Results.load(path)


def test_provenance_names_the_plan(result) -> None:
    same, other = run(), run(seed=2)
    assert same.provenance["plan_hash"] == result.provenance["plan_hash"]
    assert other.provenance["plan_hash"] != result.provenance["plan_hash"]
    assert result.provenance["plan"]["policies"]["ts"]["parameters"]["sigma"] == 1.0
    for key in ("zib", "numpy", "numba", "python", "seed", "started", "seconds"):
        assert key in result.provenance


def test_a_thousand_arms() -> None:
    env = zib.env.GaussianMAB(means=np.linspace(1, 2, 1000), probs=[0.2] * 1000, sigma=1.0)
    found = zib.simulate(
        [mab.ZITS(horizon=3000, sigma=1.0)], env, horizon=3000, replications=1, progress=False
    )
    assert found.pulls.sum() == 3000
    assert (found.pulls[0, 0] >= 1).all()


def test_a_policy_for_fewer_arms_than_there_are_is_refused() -> None:
    spec = zib.contextual.Disjoint(spec=zib.contextual.JointUCB(), n_arms=3)
    env = zib.env.RandomContextual(n_arms=5, dimension=3, sparsity=2)
    with pytest.raises(zib.InvalidParameterError, match="at least the 5 arms .*; got 3"):
        zib.simulate([spec], env, horizon=10, replications=1, progress=False)
