"""What does a study hold, asked once? Runs, trajectories, groups, optima, laws, evaluation, recommendation, theory.

A `StudyView` is built once and read by every figure and page. What is costly is computed when first asked for and
kept; nothing is computed here that another room does not compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from etastar.errors import InputError
from etastar.estimate.cells import Block, EffColumn, Group, Quantity, build_groups
from etastar.estimate.definitions import flag_disagreements
from etastar.estimate.estimates import Estimates, Options, estimate_group
from etastar.estimate.weights import FitChoice
from etastar.importers.tables import read_runs
from etastar.laws.loglinear import Law, all_laws
from etastar.predict.budget import model_sets
from etastar.predict.calibration import StudyReport, no_decay_report, study_report
from etastar.predict.diagnosis import StudyDiagnosis, diagnose_study
from etastar.predict.evaluate import Evaluation, evaluate
from etastar.predict.evidence import Evidence
from etastar.predict.logged import LoggedRows, read_trajectories
from etastar.predict.paths import paths_by_group
from etastar.predict.recommend import Answer, answer_from
from etastar.predict.settings import RunSettings
from etastar.predict.trunks import Paths
from etastar.scale import Scale, format_number
from etastar.theory.nodecay import NoDecayStudy

Found = TypeVar("Found")

BUDGETS = (0.05, 0.6)  # β of the paper's evaluation
FURTHER = 0.35  # of β beyond the first budget that every test cell can spend along D
TEST_SHARE = 0.5  # test cells reach down to this share of the longest D (the paper's 50B of 100B)
PAPER_REPLICATES = 50  # redraws behind the paper's own fits, whose intervals no figure shows


@dataclass(frozen=True)
class StudyView:
    """A study as figures and pages see it. `groups` have blocks; the label of a lone group is empty."""

    name: str
    table: pa.Table
    groups: tuple[Group, ...]
    options: Options = field(default_factory=Options)
    eff_column: EffColumn = EffColumn.MEAN
    trajectories: LoggedRows | None = None
    group_columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    _kept: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_eff_lr(self, column: EffColumn) -> StudyView:
        """The same study with another mean of η_eff for a run."""
        groups = build_groups(self.table, group_columns=self.group_columns, eff_column=column)
        return replace(self, groups=tuple(group for group in groups if group.blocks), eff_column=column)

    @cached_property
    def main(self) -> Group:
        """The group that figures of one group show: with weight decay and a free norm, then the most cells."""
        return max(self.groups, key=lambda group: (not (_no_decay(group) or _fixes_norm(group)), _cells(group)))

    @cached_property
    def no_decay(self) -> Group | None:
        """The group trained by Adam without weight decay; the one with the most cells."""
        return max((group for group in self.groups if _no_decay(group)), key=_cells, default=None)

    @cached_property
    def adamh(self) -> Group | None:
        """The group trained by AdamH; the one with the most cells."""
        found = [group for group in self.groups if str(group.conditions.get("optimizer")).lower() == "adamh"]
        return max(found, key=_cells, default=None)

    @cached_property
    def _paths(self) -> dict[str, Paths]:
        if self.trajectories is None:
            return {}
        columns = list(self.group_columns) if self.group_columns is not None else None
        return paths_by_group(self.table, self.trajectories, list(self.groups), columns)[0]

    def paths(self, group: Group) -> Paths:
        """Trajectories by N, one path an LR; empty where none was logged."""
        return self._paths.get(group.label, {})

    def estimates(self, group: Group) -> dict[Quantity, Estimates]:
        """η* and, where it is measured, η_eff* of every cell, with intervals and statuses."""
        return self._keep(("estimates", group.label), lambda: flag_disagreements(estimate_group(group, self.options)))

    def laws(self, group: Group) -> tuple[Law, ...]:
        """Every law of a group: quantity by quantity along D, along N, joint."""

        def fitted() -> tuple[Law, ...]:
            each = self.estimates(group).values()
            return tuple(law for found in each for law in all_laws(found, level=self.options.level))

        return self._keep(("laws", group.label), fitted)

    def paper_fits(self, group: Group, degree: int) -> dict[Quantity, Estimates]:
        """The paper's own fits: every point alike, each quantity in its own logarithm, one degree."""
        choice = FitChoice(degree=degree, window="all", own_coordinate=True)
        options = Options(choice=choice, level=self.options.level, replicates=PAPER_REPLICATES, seed=self.options.seed)
        return self._keep(("fits", group.label, degree), lambda: estimate_group(group, options))

    def evidence(self, group: Group, settings: RunSettings | None = None) -> Evidence:
        """What strategies draw on; `settings` are the target's where they are not the sweep's."""

        def made() -> Evidence:
            return Evidence(group, self.estimates(group), self.eff_column, self.paths(group), settings)

        return self._keep(("evidence", group.label, settings), made)

    def test_cells(self, group: Group) -> tuple[float, tuple[float, float]]:
        """(N, range of D) that strategies are judged on: the largest N with three optima, its upper half of D."""
        lr = self.estimates(group)[Quantity.LR]
        sizes = [b.params for b in group.blocks if (lr.usable & (lr.params == b.params)).sum() >= 3]
        params = max(sizes, default=group.blocks[-1].params)
        longest = float(block_of(group, params).tokens[-1])
        return params, (TEST_SHARE * longest, longest)

    def evaluation(
        self,
        group: Group,
        *,
        params: float | None = None,
        tokens: tuple[float, float] | None = None,
        budgets: tuple[float, float] | None = None,
    ) -> Evaluation | str:
        """Every strategy at every budget on the test cells (by default `test_cells`); or why it cannot be.

        Budgets are the paper's, 5 to 60 %, and further where a short study has no training set within them.
        """
        own, upper = self.test_cells(group)
        size, span = params or own, tokens or upper
        budgets = budgets or self._budgets(group, size, span[0])

        def judged() -> Evaluation:
            return evaluate(self.evidence(group), params=size, tokens=span, budgets=budgets)

        return self._keep(("evaluation", group.label, size, span, budgets), lambda: _or_reason(judged))

    def _budgets(self, group: Group, params: float, shortest_test: float) -> tuple[float, float]:
        first_pair = 2 * float(block_of(group, params).tokens[0]) / shortest_test
        sets = model_sets([block.params for block in group.blocks], params)
        first_set = sets[0][0] + 0.01 if sets else 0.0
        return BUDGETS[0], float(min(max(BUDGETS[1], first_pair + FURTHER, first_set), 1.0))

    def answer(self, group: Group, target: Scale, settings: RunSettings | None = None) -> Answer:
        """What every strategy says about a target, and which is recommended."""
        return self._keep(
            ("answer", group.label, target, settings),
            lambda: answer_from(self.evidence(group, settings), target, self.options.level),
        )

    def diagnosis(self, group: Group, target: Scale, settings: RunSettings | None = None) -> StudyDiagnosis:
        """Regimes and the predicted bend, at the recommended η or the first that a strategy gave."""

        def made() -> StudyDiagnosis:
            found = self.answer(group, target, settings)
            said = [found.recommended.log2_lr] if found.recommended else []
            said += [p.log2_lr for p in found.predictions if p.log2_lr is not None]
            evidence = self.evidence(group, settings)
            return diagnose_study(evidence, target, said[0] if said else None, self.options.level)

        return self._keep(("diagnosis", group.label, target, settings), made)

    def theory_report(self, group: Group, params: float) -> StudyReport | str:
        """The theory calibrated on the trajectories of one N, with held-out errors; or why it cannot be."""
        theory = self.evidence(group).theory
        if isinstance(theory, str):
            return theory
        if params not in theory.paths:
            return f"no trajectories at N = {format_number(params)}"
        return self._keep(("theory", group.label, params), lambda: _or_reason(lambda: study_report(theory, params)))

    def no_decay_report(self, group: Group, params: float) -> NoDecayStudy | None:
        """Do large learning rates coincide without weight decay? None where the theory cannot be asked."""
        theory = self.evidence(group).theory
        if isinstance(theory, str) or params not in theory.paths:
            return None
        found = self._keep(
            ("no decay", group.label, params), lambda: _or_reason(lambda: no_decay_report(theory, params))
        )
        return None if isinstance(found, str) else found

    def _keep(self, key: tuple[Any, ...], make: Callable[[], Found]) -> Found:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def read_study(
    source: str | Path,
    *,
    mapping: dict[str, str] | None = None,
    where: str | None = None,
    group_columns: tuple[str, ...] | None = None,
    trajectories: Path | None = None,
    options: Options = Options(),
    eff_column: EffColumn = EffColumn.MEAN,
) -> StudyView:
    """A view of a study folder or of a runs file (CSV, Parquet, JSONL)."""
    path = Path(source)
    found = read_runs(path, mapping=mapping, where=where)
    groups = build_groups(found.table, group_columns=group_columns, eff_column=eff_column)
    return StudyView(
        name=path.stem,
        table=found.table,
        groups=tuple(group for group in groups if group.blocks),
        options=options,
        eff_column=eff_column,
        trajectories=read_trajectories(path, trajectories),
        group_columns=group_columns,
        notes=found.notes,
    )


def block_of(group: Group, params: float) -> Block:
    """The block of one N."""
    return next(block for block in group.blocks if block.params == params)


def training_of(group: Group) -> str:
    """How a group was trained, for a caption: "adamw, λ 0.1, β₁ 0.95, wsd, 8.192k tokens a step"."""
    known = group.conditions
    batch = known.get("batch_tokens")
    decay = known.get("weight_decay")
    parts = [
        known.get("optimizer"),
        None if decay is None else f"λ {decay:g}",
        None if known.get("beta1") is None else f"β₁ {known['beta1']:g}",
        known.get("schedule"),
        f"{format_number(batch)} tokens a step" if isinstance(batch, float) else None,
    ]
    return ", ".join(str(part) for part in parts if part is not None) or group.label or "settings unknown"


def _cells(group: Group) -> int:
    return sum(len(block.tokens) for block in group.blocks)


def _no_decay(group: Group) -> bool:
    """Adam whose weights nothing shrinks."""
    known = group.conditions
    optimizer = str(known.get("optimizer")).lower()
    return optimizer == "adam" or (optimizer in ("adamw", "none") and known.get("weight_decay") == 0.0)


def _fixes_norm(group: Group) -> bool:
    return str(group.conditions.get("optimizer")).lower() in ("adamh", "muonh")


def _or_reason(make: Callable[[], Found]) -> Found | str:
    try:
        return make()
    except InputError as error:
        return error.message.removeprefix("tokens: ").removeprefix("params: ")
