"""Worlds that a log leaves open, what policies earn in them, and what follows for the choice."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import zib
from tests.advise.test_advice import context_frame, frame_of, log_of, quick, run_program
from zib.core import kernel
from zib.core.rng import Role, stream
from zib.logs import LoggedData
from zib.logs.advise import Advice, advise
from zib.logs.advise.choose import choose, with_context
from zib.logs.advise.collect import collect
from zib.logs.advise.context import context_report
from zib.logs.advise.context_worlds import ContextWorlds
from zib.logs.advise.estimates import overall, summaries, within_sd
from zib.logs.advise.law import law_report
from zib.logs.advise.simulation import least_regret, over_worlds
from zib.logs.advise.snippet import contextual_program, plain_program
from zib.logs.advise.worlds import Worlds
from zib.sim.loop import play


def drawn_log(
    rng: np.random.Generator, probs: list[float], size: Any, n: int = 2_000
) -> LoggedData:
    """Return a log of arms that pay with these probabilities and magnitudes `size(rng, n)`."""
    arm = rng.integers(0, len(probs), n)
    paid = rng.random(n) < np.array(probs)[arm]
    return LoggedData.from_arrays(
        arm, np.where(paid, size(rng, n), 0.0), arms=list(range(len(probs)))
    )


def worlds_of(log: LoggedData) -> Worlds:
    found = collect(log, 0, lambda share: None)
    return Worlds(found, summaries(found, 0.95), 1.0)


# ------------------------------------------------------------------------------------------ worlds


def test_worlds_are_centred_on_the_log_and_shrunk() -> None:
    log = log_of(frame_of(20_000))
    means = zib.env.BootstrapMAB(log).arm_means
    worlds = worlds_of(log)
    drawn = np.array([worlds.instance(np.random.default_rng(i)).arm_means for i in range(150)])
    error = np.array([log.reward[log.arm == k].std() / np.sqrt(20_000 / 3) for k in range(3)])
    # arms that differ by many standard errors are hardly shrunk: within one of them
    assert (np.abs(drawn.mean(axis=0) - means) < error).all()
    assert np.allclose(drawn.std(axis=0), error, rtol=0.25)
    assert worlds.alike < 1e-6
    world = worlds.instance(np.random.default_rng(0))
    rewards = world.sample(1, np.random.default_rng(1), 200_000)
    # five standard errors: error probability 6e-7
    assert abs(rewards.mean() - world.arm_means[1]) < 5 * rewards.std() / np.sqrt(200_000)
    assert set(np.unique(rewards)) <= {0.0, *log.reward}
    close = log_of(frame_of(600))
    spread = zib.env.BootstrapMAB(close).arm_means
    worlds = worlds_of(close)
    drawn = np.array([worlds.instance(np.random.default_rng(i)).arm_means for i in range(50)])
    assert np.ptp(drawn.mean(axis=0)) < 1.2 * np.ptp(spread)


def test_logs_of_equal_arms_leave_it_open_whether_arms_differ() -> None:
    """The interval of the gain contains 0 unless `alike` is below 2.5 %, here in 36 logs.

    At most 1/39 of such logs should be below; more than five of 36 has a probability of 3e-4.
    """
    rng = np.random.default_rng(3)
    sizes = [
        lambda g, n: g.normal(5.0, 1.0, n),
        lambda g, n: g.exponential(3.0, n),
        lambda g, n: g.lognormal(2.0, 1.0, n),
    ]
    below = 0
    for i in range(36):
        p, arms = (0.005, 0.05, 0.2)[i % 3], (2, 5, 20)[i // 3 % 3]
        below += worlds_of(drawn_log(rng, [p] * arms, sizes[i // 9 % 3])).alike < 0.025
    assert below <= 5


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.005, 0.05, 0.2])
@pytest.mark.parametrize("arms", [2, 5, 20])
def test_equal_arms_are_left_open_in_93_percent(p: float, arms: int) -> None:
    """Of 150 logs at most 1/39 should be below 2.5 %; more than 10 has a probability of 4e-3."""
    rng = np.random.default_rng(4)
    sizes = [lambda g, n: g.exponential(3.0, n), lambda g, n: g.lognormal(2.0, 1.0, n)]
    below = 0
    for i in range(150):
        log = drawn_log(rng, [p] * arms, sizes[i % 2], (600, 3_000)[i % 2])
        if log.reward.any():  # else nothing is simulated
            below += worlds_of(log).alike < 0.025
    assert below <= 10


def test_arms_without_data_or_payments() -> None:
    frame = frame_of(600)
    frame.loc[frame["ad"] == "c", "spent"] = 0.0
    worlds = worlds_of(log_of(frame, arms=["a", "b", "c", "d"]))
    assert worlds.kept == [0, 1, 2]
    means = np.array([worlds.instance(np.random.default_rng(i)).arm_means for i in range(50)])
    assert (means[:, 2] >= 0.0).all()
    assert 0.0 < means[:, 2].mean() < means[:, 1].mean()
    full = worlds_of(log_of(frame_of(400).assign(spent=lambda f: f["spent"] + 1.0)))
    assert (
        full.instance(np.random.default_rng(0)).sample(0, np.random.default_rng(1), 50) > 0
    ).all()


def test_intervals_reach_further_where_arms_may_be_alike() -> None:
    apart = np.linspace(1.0, 100.0, 100)
    sure = over_worlds(apart, np.zeros(0), 0.0, 0.9)
    unsure = over_worlds(apart, np.zeros(400), 0.6, 0.9)
    assert sure.low == pytest.approx(5.0, abs=1.0)
    assert sure.high == pytest.approx(96.0, abs=1.0)
    assert (unsure.low, unsure.value) == (0.0, pytest.approx(0.4 * 50.5))
    assert unsure.high == pytest.approx(sure.high)


def test_the_default_stays_unless_another_policy_is_clearly_better() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(100.0, 50.0, 40)
    noise = rng.normal(0.0, 5.0, (2, 40))
    assert least_regret(np.vstack([common, common - 1.0 + noise[0]])) == 0
    assert (
        least_regret(np.vstack([common, common - 20.0 + noise[0], common - 30.0 + noise[1]])) == 2
    )


# ---------------------------------------------------------------------------------------- contexts


def test_worlds_with_contexts_pay_what_the_log_says() -> None:
    log = log_of(context_frame(), context=["age", "town"])
    found = collect(log, 0, lambda share: None)
    worlds = ContextWorlds(found, summaries(found, 0.95), 1.0)
    world = worlds.instance(np.random.default_rng(0))
    block = world.block(np.random.default_rng(1), 20_000)
    best = block.mean.argmax(axis=1)
    column = log.context_names.index("age")
    age = block.z[:, 1 + column, 0]
    new = list(log.arms).index("new")
    assert ((best == new) == (age > 0.0)).mean() > 0.9  # "new" pays more often for the old
    # averages of the world are those of the log, within 15 %
    averages = [log.reward[log.arm == k].mean() for k in range(2)]
    assert np.allclose(world.arm_means, averages, rtol=0.15)
    # five standard errors: error probability 6e-7
    error = 5 * block.reward.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(block.reward.mean(axis=0) - world.arm_means) < error).all()
    assert world.best_mean == pytest.approx(block.mean.max(axis=1).mean(), rel=0.05)
    again = worlds.instance(np.random.default_rng(0))
    assert (again.block(np.random.default_rng(1), 64).reward == block.reward[:64]).all()


def test_policies_without_context_play_the_rounds_of_those_with_it() -> None:
    found = collect(log_of(context_frame(), context=["age", "town"]), 0, lambda share: None)
    env = ContextWorlds(found, summaries(found, 0.95), 1.0)
    spec = zib.mab.EpsilonGreedy(epsilon=0.2)
    free = play(spec, env, np.array([30, 100]), 5, 0, compiled=False)
    # the same policy by hand, on the same rounds
    block = env.instance(stream(5, Role.INSTANCE, 0)).block(stream(5, Role.ENVIRONMENT, 0), 128)
    state, rng, out = kernel.init(spec, 2), stream(5, Role.POLICY, 0), np.zeros(2)
    lost = earned = 0.0
    for t in range(100):
        arm = kernel.choose(spec, state, rng, out)
        reward = float(block.reward[t, arm])
        kernel.update(spec, state, arm, reward)
        lost += float(block.mean[t].max() - block.mean[t, arm])
        earned += reward
    assert free.regret[-1] == pytest.approx(lost)
    assert free.reward[-1] == pytest.approx(earned)
    assert int(free.pulls.sum()) == 100


def test_actions_that_come_and_go_need_a_policy_with_context() -> None:
    class Moving(ContextWorlds):
        def instance(self, rng: np.random.Generator) -> Any:
            world = super().instance(rng)
            draw = world.block

            def block(rng: np.random.Generator, n: int, out: Any = None) -> Any:
                rounds = draw(rng, n, out)
                rounds.arms[::2] = rounds.arms[::2, ::-1]
                return rounds

            world.block = block  # type: ignore[method-assign]
            return world

    found = collect(log_of(context_frame(), context=["age"]), 0, lambda share: None)
    env = Moving(found, summaries(found, 0.95), 1.0)
    with pytest.raises(zib.InvalidParameterError, match="`env` must offer every arm"):
        play(zib.mab.EpsilonGreedy(), env, np.array([10]), 0, 0, compiled=False)


# -------------------------------------------------------------------------------------- simulation


def test_earnings_add_up() -> None:
    heard: list[tuple[str, float]] = []
    log = log_of(frame_of())
    advice = advise(
        log, horizon=2_000, replications=4, progress=lambda text, share: heard.append((text, share))
    )
    ran = advice.simulation
    assert ran is not None
    assert ran.labels[0] == advice.recommendation.label
    assert {"ZI adaptive", "MOTS", "Normal TS", "uniform", "as in the log"} < set(ran.labels)
    assert (ran.rounds, ran.replications) == (2_000, 4)
    by_label = {row.label: row for row in ran.earned}
    uniform = ran.totals[ran.labels.index("uniform")]
    for row, totals in zip(ran.earned, ran.totals, strict=True):
        apart = (1 - ran.alike) * float((totals - uniform).mean())
        assert row.above_uniform.value == pytest.approx(apart, abs=1e-9)
        assert row.total.value <= ran.best_total * (1 + 1e-12)
        assert row.regret.value >= 0.0
        assert row.total.low <= row.total.value <= row.total.high
    assert by_label["uniform"].above_uniform == (0.0, 0.0, 0.0)
    assert by_label["uniform"].best_share == pytest.approx(1 / 3)
    assert ran.earned[0].behind.value == 0.0
    assert ran.against_plain is not None
    assert by_label[ran.against_plain.plain].plain
    lost = {row.label: row.regret.value for row in ran.earned[:-2] if row.plain}
    assert min(lost, key=lost.__getitem__) == ran.against_plain.plain
    assert not by_label[ran.against_plain.telling].plain
    shares = [share for _, share in heard]
    assert shares == sorted(shares)
    assert (heard[0][0], heard[-1]) == ("reading the log", ("done", 1.0))
    assert any(text == "preparing MOTS" for text, _ in heard)
    again = advise(log, horizon=2_000, replications=4)
    assert again.to_dict() == advice.to_dict()
    words = str(advice)
    assert "times as many rounds" not in words
    assert "more than choosing at random" in words


@pytest.mark.slow
def test_clear_differences_are_earned_and_covered() -> None:
    """The gain on the true arms lies in the interval, and the recommended policy is near the best.

    Arms differ by a factor of two, so the interval excludes 0; it misses the truth in about 5 % of
    logs, and this seed is not one of them.
    """
    env = zib.env.ExponentialMAB(means=[3.0, 3.0, 3.0], probs=[0.05, 0.1, 0.05])
    rng = np.random.default_rng(0)
    log = drawn_log(rng, [0.05, 0.1, 0.05], lambda g, n: g.exponential(3.0, n), 8_000)
    advice = advise(log, replications=50)
    assert advice.simulation is not None
    gain = advice.simulation.earned[0].above_uniform
    policies = {"recommended": advice.recommendation.spec}
    for other in advice.recommendation.alternatives:
        if other.label in advice.simulation.labels:
            policies[other.label] = eval(other.code, {"zib": zib})
    result = zib.simulate(policies, env, horizon=8_000, replications=200, progress=False)
    regret = result.mean()[:, -1]
    true = 8_000 * (env.best_mean - env.arm_means.mean()) - regret[0]
    assert gain.low > 0.0
    assert gain.low < true < gain.high
    assert regret[0] <= 1.15 * regret.min()


@pytest.mark.slow
def test_where_context_matters_policies_with_and_without_it_are_compared() -> None:
    advice = advise(log_of(context_frame(), context=["age", "town"]), horizon=1_500, replications=4)
    ran = advice.simulation
    assert ran is not None
    assert ran.contextual
    assert advice.recommendation.contextual
    assert {"Joint-UCB, disjoint", "ZI adaptive", "Normal TS"} < set(ran.labels)
    lost = {row.label: row.regret.value for row in ran.earned}
    assert lost[ran.labels[0]] < 0.6 * lost["ZI adaptive"]
    assert ran.earned[0].above_uniform.low > 0.0
    assert "context of a row of the log" in str(advice)


def test_nothing_is_earned_where_arms_met_different_situations() -> None:
    rng = np.random.default_rng(0)
    n = 3_000
    rich = rng.random(n) < 0.5
    arm = np.where(rng.random(n) < np.where(rich, 0.9, 0.1), "coupon", "none")
    reward = np.where(rng.random(n) < np.where(rich, 0.3, 0.1), rng.exponential(5.0, n), 0.0)
    frame = pd.DataFrame({"ad": arm, "spent": reward, "rich": rich.astype(float)})
    advice = advise(log_of(frame, context=["rich"]))
    assert advice.balance is not None
    assert advice.balance.fails
    assert advice.simulation is None
    assert advice.recommendation.spec is not None
    assert "would earn" not in str(advice)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "exponential", "constant"])
def test_programs_of_all_candidates_run(law: str, tmp_path: Path) -> None:
    frame = frame_of(2_000, law="gaussian" if law == "constant" else law)
    if law == "constant":
        frame["spent"] = np.where(frame["spent"] != 0, 12.5, 0.0)
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = log_of(frame, propensity="p")
    found = collect(log, 0, lambda share: None)
    arms, whole = summaries(found, 0.95), overall(found, 0.95)
    choices = choose(found, arms, whole, law_report(found, 0.95), within_sd(found, 0.95))
    source = {"path": tmp_path / "log.csv", "arm": "ad", "reward": "spent"}
    for choice in (*choices.candidates, *choices.others):
        text = plain_program(
            choice, found, rounds=30, unit=choices.unit, random="yes", source=source
        )
        assert sum(run_program(text)["bandit"].pulls.values()) == 2_030


@pytest.mark.slow
def test_the_program_of_a_contextual_candidate_with_a_horizon_runs(tmp_path: Path) -> None:
    frame = context_frame()
    frame.to_parquet(tmp_path / "log.parquet")
    log = log_of(frame, context=["age", "town"])
    found = collect(log, 0, lambda share: None)
    arms, whole = summaries(found, 0.95), overall(found, 0.95)
    choices = choose(found, arms, whole, law_report(found, 0.95), within_sd(found, 0.95))
    about = context_report(found)
    assert about is not None
    assert about.matters
    source = {
        "path": tmp_path / "log.parquet",
        "arm": "ad",
        "reward": "spent",
        "context": ["age", "town"],
    }
    timed = next(choice for choice in with_context(choices, 2) if choice.timed)
    text = contextual_program(timed, found, rounds=20, unit=1.0, source=source)
    bandit = run_program(text)["bandit"]
    assert bandit.n_updates == 4_020
    assert bandit.spec.spec.horizon == 4_020


def test_the_advice_without_simulation_names_what_was_not_simulated() -> None:
    advice: Advice = quick(log_of(frame_of(500)))
    assert "not simulated" in str(advice)
