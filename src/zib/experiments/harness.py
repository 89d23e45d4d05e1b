"""An experiment declares; the harness plays, draws and records.

An experiment is one class in a file named after its id: its settings with their sources, the panels
to be played (or whatever else is measured), its figures and tables, and the claims it judges.
Declaring `order` makes it an item of the report; `zib.experiments.runner` finds it by itself.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

import zib
from zib.experiments.draw import Drawn, Look, regret_figures, rounds_to_record
from zib.experiments.judge import judged
from zib.experiments.record import Context, Picture, Record, Setting, Table, Verdict, provenance
from zib.report import paper_style, save_figure
from zib.sim import Results, cuda
from zib.sim.plan import CUDA, Plan, backend_for

Found = TypeVar("Found")
T = TypeVar("T")
Floats = NDArray[np.float64]


class Scaled(Generic[T]):
    """A value that depends on the scale: read on an experiment, it is that of its own scale.

    One called `replications` gives way to the number that the user wants.
    """

    def __init__(self, *, quick: T, paper: T) -> None:
        self.quick = quick
        self.paper = paper
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, experiment: None, owner: object) -> Scaled[T]: ...
    @overload
    def __get__(self, experiment: Experiment[Any], owner: object) -> T: ...
    def __get__(self, experiment: Experiment[Any] | None, owner: object) -> T | Scaled[T]:
        if experiment is None:
            return self
        wanted = experiment.context.replications
        if wanted is not None and self._name == "replications":
            return wanted  # type: ignore[return-value]
        return self.quick if experiment.context.quick else self.paper


def amount(name: str, symbol: str, value: int, paper: int) -> Setting:
    """Return a setting that is the paper's unless another number was chosen.

    Examples
    --------
    >>> amount("replications", "N", 8, 50).value
    'N = 8 (the paper: 50)'
    """
    if value == paper:
        return Setting(name, f"{symbol} = {value}", "paper")
    return Setting(name, f"{symbol} = {value} (the paper: {paper})", "ours")


class Experiment(ABC, Generic[Found]):
    """One figure, table or study; `Found` is what it measures.

    Attributes
    ----------
    id
        Name of the file, and of the item on the command line.
    title, about
        What the report says first.
    order
        Place in the report.
    weight
        Share of the work of a full run, for the progress bar.
    remarks
        What a reader should know, whatever came out.
    random
        Whether a seed matters.
    compiles_contextual
        Whether contextual policies play, which take long to compile.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    order: ClassVar[float]
    weight: ClassVar[float]
    remarks: ClassVar[tuple[str, ...]] = ()
    random: ClassVar[bool] = True
    compiles_contextual: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "order" in cls.__dict__:
            cls.id = cls.__module__.rpartition(".")[2]

    def __init__(self, context: Context) -> None:
        self.context = context
        self.interruption = ""

    # ------------------------------------------------------------------- what a subclass declares

    @abstractmethod
    def settings(self) -> Iterable[Setting]:
        """Return every value with its source; the seed is added."""

    @abstractmethod
    def measure(self) -> Found:
        """Do the work."""

    def figures(self, found: Found) -> Iterable[Drawn]:
        """Draw what was found."""
        return ()

    def tables(self, found: Found) -> Iterable[Table]:
        """Return the numbers to be shown."""
        return ()

    def claims(self, found: Found) -> Iterable[Verdict]:
        """Judge the claims on what was found."""
        return ()

    def notes(self, found: Found) -> Iterable[str]:
        """Return what a reader should know."""
        return self.remarks

    # ------------------------------------------------------------------------ what the harness does

    @classmethod
    def run(cls, context: Context) -> Record:
        """Run the experiment; KeyboardInterrupt if the user stopped it before anything was done."""
        started = time.perf_counter()
        experiment = cls(context)
        found = experiment.measure()
        settings = tuple(experiment.settings())
        if cls.random:
            settings = (*settings, Setting("seed", str(context.seed), "ours"))
        plan = [cls.id, context.scale, [astuple(setting) for setting in settings]]
        origin = provenance([plan, experiment.hashes(found)], context.seed)
        context.tell("drawing", 0.97)
        stopped = (experiment.interruption,) if experiment.interruption else ()
        return Record(
            id=cls.id,
            title=cls.title,
            about=cls.about,
            scale=context.scale,
            settings=settings,
            pictures=experiment._save_figures(found, origin),
            tables=tuple(experiment.tables(found)),
            verdicts=judged(lambda: experiment.claims(found)),
            notes=(*stopped, *experiment.notes(found)),
            seconds=time.perf_counter() - started,
            provenance=origin,
            interrupted=bool(stopped),
        )

    def hashes(self, found: Found) -> Sequence[str]:
        """Return the fingerprints of the simulations that were run."""
        return ()

    def _save_figures(self, found: Found, origin: Mapping[str, Any]) -> tuple[Picture, ...]:
        pictures = []
        with paper_style():
            for drawn in self.figures(found):
                stem = f"{self.id}{drawn.suffix}"
                save_figure(drawn.figure, self.context.folder, stem, drawn.numbers, origin)
                pictures.append(Picture(stem, drawn.caption, drawn.alternative))
        return tuple(pictures)


# ------------------------------------------------------------------------------------- simulations


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What is to be played: policies in one environment.

    Attributes
    ----------
    name
        The panel in words, for tables and verdicts.
    env
        The environment, or a generator of environments.
    policies
        Specs by label, or a function that returns them when it is their turn.
    horizon, replications, seed
        How much to play; the seed of the run by default.
    title
        What stands over the panel; the name by default.
    key
        What tells the panel from others, as columns of the table of numbers.
    checkpoints
        Rounds at which regret is recorded; by default those that suit a figure.
    reference
        Returns curves that belong to no policy, given the recorded rounds.
    """

    name: str
    env: Any
    policies: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    horizon: int
    replications: int
    seed: int | None = None
    title: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: int | Sequence[int] | None = None
    reference: Callable[[NDArray[np.int64]], dict[str, Floats]] | None = None


@dataclass(frozen=True, kw_only=True)
class Played(Panel):
    """A panel with its results and with the curves of no policy."""

    result: Results
    references: Mapping[str, Floats] = field(default_factory=dict)


def horizons(panels: Iterable[Panel]) -> str:
    """Return the horizons of panels in words: a claim holds for what was played, no longer.

    Examples
    --------
    >>> few = Panel(name="a", env=None, policies={}, horizon=100, replications=1)
    >>> horizons([few])
    'T = 100'
    """
    found = sorted({panel.horizon for panel in panels})
    if not found:
        return ""
    return f"T = {found[0]}" if len(found) == 1 else f"T = {found[0]} to {found[-1]}"


def play(context: Context, panel: Panel, tell: Callable[[int, int], None] | None = None) -> Played:
    """Simulate one panel; KeyboardInterrupt if the user stops it."""
    policies = panel.policies() if callable(panel.policies) else panel.policies
    with warnings.catch_warnings():
        # an interrupted simulation says so by a warning; here its result says so
        warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
        result = zib.simulate(
            policies,
            panel.env,
            **_asked(context, panel),
            backend=_backend(context, panel, policies),
            workers=context.workers,
            progress=tell or False,
            store=context.store,
        )
    if not result.complete:
        raise KeyboardInterrupt
    references = panel.reference(result.checkpoints) if panel.reference else {}
    known = vars(panel) | {"policies": policies, "title": panel.title or panel.name}
    return Played(**known, result=result, references=references)


def compile_ahead(context: Context, panels: Sequence[Panel]) -> None:
    """Compile for all panels at once where a GPU plays them: one by one takes minutes."""
    if context.backend != "cuda":
        return
    missing: dict[Any, Any] = {}
    for panel in panels:
        policies = panel.policies() if callable(panel.policies) else panel.policies
        if _backend(context, panel, policies) == "cuda":
            plan = Plan.of(policies, panel.env, **_asked(context, panel), engine=CUDA)
            missing |= cuda.missing_players(plan)
    cuda.compile_all(missing)


def _asked(context: Context, panel: Panel) -> dict[str, Any]:
    """Return how much is to be played."""
    rounds = panel.checkpoints
    return {
        "horizon": panel.horizon,
        "replications": panel.replications,
        "seed": context.seed if panel.seed is None else panel.seed,
        "checkpoints": rounds_to_record(panel.horizon) if rounds is None else rounds,
    }


def _backend(context: Context, panel: Panel, policies: Mapping[str, Any]) -> str:
    """Return who plays a panel."""
    return backend_for(context.backend, policies.values(), panel.env, context.seed)


class Simulated(Experiment["list[Played]"]):
    """An experiment whose panels are simulated; its figure has a regret curve per policy.

    An interrupted run is recorded from the panels that were finished.

    Attributes
    ----------
    look
        Legend and caption of the figure.
    logarithmic
        Whether the figure is shown on logarithmic axes as well.
    """

    look: ClassVar[Look]
    logarithmic: ClassVar[bool] = False

    @abstractmethod
    def panels(self) -> Sequence[Panel]:
        """Return what is to be played."""

    def measure(self) -> list[Played]:
        """Play one panel after the other."""
        panels = self.panels()
        found: list[Played] = []
        compile_ahead(self.context, panels)
        for i, panel in enumerate(panels):

            def tell(done: int, total: int, i: int = i, name: str = panel.name) -> None:
                self.context.tell(name, (i + done / total) / len(panels))

            tell(0, 1)
            try:
                found.append(play(self.context, panel, tell))
            except KeyboardInterrupt:
                break
        if not found:
            raise KeyboardInterrupt
        missing = len(panels) - len(found)
        if missing:
            self.interruption = f"Interrupted: {missing} of {len(panels)} panels are missing."
        return found

    def hashes(self, found: list[Played]) -> Sequence[str]:
        """Return the fingerprints of the simulations that were run."""
        return [str(panel.result.provenance["plan_hash"]) for panel in found]

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw regret curves, three panels in a row."""
        return regret_figures(found, self.look, logarithmic=self.logarithmic)
