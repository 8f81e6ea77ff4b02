"""What does a study's folder say is to be trained, and what of it is there already?

    plan.yaml            the plan (earlier ones under plans/)
    specs/STACK.yaml     every stack that was ever launched, by its id: name, corpus identity, specification
    runs/, trajectories/ Parquet parts; checkpoints/STACK/; journal/*.jsonl; logs/; decisions/*.jsonl

A cell is a learning rate and a horizon of a stack; it is done when the row of its run id is in the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from etastar.errors import EtastarError, InputError, SpecError
from etastar.plan.study_plan import StudyPlan, load_plan
from etastar.records import content_id
from etastar.store import parts, read_part, write_atomically
from etastar.train.spec import DEFAULT_CORPUS, TrainSpec
from etastar.train.spec_file import build_spec

Cell = tuple[float, int]  # learning rate, horizon


class StackRecord(BaseModel):
    """One stack as the study's folder keeps it: all that a worker needs to train it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str  # of the plan's stack
    corpus: str  # the identity of its tokens
    spec: TrainSpec

    @classmethod
    def of(cls, spec: TrainSpec, *, name: str, corpus: str) -> StackRecord:
        """The record of a specification, under its id."""
        return cls(id=spec.stack_id(data_identity=corpus), name=name, corpus=corpus, spec=spec)

    def part(self, lrs: Iterable[float], horizons: Iterable[int]) -> StackRecord:
        """The stack of some of its learning rates, packed anew, to some of its horizons."""
        spec = self.spec.model_copy(update={"lrs": tuple(lrs), "horizons": tuple(horizons)})
        return StackRecord.of(spec, name=self.name, corpus=self.corpus)

    def run_id(self, lr: float, horizon: int) -> str:
        """The name of a cell's run."""
        return self.spec.run_id(lr, horizon, data_identity=self.corpus)

    def cells(self) -> dict[Cell, str]:
        """Every cell and its run id."""
        return {(lr, h): self.run_id(lr, h) for lr in self.spec.lrs for h in self.spec.horizons}


@dataclass(frozen=True)
class Study:
    """A study's folder with its plan, and the plan's stacks."""

    path: Path
    plan: StudyPlan
    stacks: tuple[StackRecord, ...]

    def record(self, stack: str) -> StackRecord:
        """A stack by its id."""
        return read_record(self.path, stack)

    def write_record(self, record: StackRecord) -> None:
        """Keep a stack's specification, by its id."""
        write_record(self.path, record)


def prepare(plan: StudyPlan, path: Path) -> Study:
    """Check every stack of a plan against its corpus, then write the plan and the specifications."""
    from etastar.train.batches import check_corpus, open_corpus

    corpora: dict[str, Any] = {}
    stacks: list[StackRecord] = []
    for stack in plan.stacks:
        spec = _settled(build_spec(plan.content_of(stack), where=f"stack {stack.name}"))
        key = spec.data.model_dump_json()
        corpus = corpora.get(key) or open_corpus(spec.data)
        corpora[key] = corpus
        check_corpus(spec, corpus)
        stacks.append(StackRecord.of(spec, name=stack.name, corpus=corpus.identity))
    _refuse_twins(stacks)
    _write_plan(path, plan)
    for record in stacks:
        write_record(path, record)
    return Study(path=path, plan=plan, stacks=tuple(stacks))


def open_study(path: str | Path) -> Study:
    """The study in a folder, from what `prepare` left there; no corpus is touched."""
    folder = Path(path)
    if not (folder / "plan.yaml").is_file():
        raise InputError(
            f"{folder}: no plan.yaml in the folder", hint="`etastar launch PLAN --out STUDY` makes a study"
        )
    plan = load_plan(folder / "plan.yaml")
    known = {}
    for record in all_records(folder):
        known.setdefault(record.name, []).append(record)
    stacks = []
    for stack in plan.stacks:
        wanted = _settled(build_spec(plan.content_of(stack), where=f"stack {stack.name}"))
        fitting = [r for r in known.get(stack.name, []) if _same(r.spec, wanted)]
        if not fitting:
            raise InputError(
                f"{folder}: no specification of the stack {stack.name!r} in specs/", hint="launch the plan again"
            )
        best = next((r for r in fitting if r.spec.data == wanted.data), fitting[0])
        stacks.append(StackRecord.of(wanted, name=stack.name, corpus=best.corpus))
    return Study(path=folder, plan=plan, stacks=tuple(stacks))


def _same(left: TrainSpec, right: TrainSpec) -> bool:
    return left.trunk_content(data_identity="") == right.trunk_content(data_identity="") and left.lrs == right.lrs


def _settled(spec: TrainSpec) -> TrainSpec:
    """With the corpus where any worker finds it, whatever folder it starts in."""
    corpus = spec.data.corpus
    if corpus is None or corpus == DEFAULT_CORPUS:
        return spec
    return spec.model_copy(update={"data": spec.data.model_copy(update={"corpus": str(Path(corpus).resolve())})})


def _refuse_twins(stacks: list[StackRecord]) -> None:
    """Two stacks that train the same run would write it twice."""
    owner: dict[str, str] = {}
    for record in stacks:
        for run in record.cells().values():
            if owner.setdefault(run, record.name) != record.name:
                raise SpecError(
                    f"stacks: {owner[run]!r} and {record.name!r} train the same run {run}",
                    hint="replicates differ in their seed; take the learning rate or horizon out of one of them",
                )


def _write_plan(folder: Path, plan: StudyPlan) -> None:
    path, text = folder / "plan.yaml", _signed(plan.to_yaml())
    if path.is_file() and (before := path.read_text(encoding="utf-8")) != text:
        name = f"{content_id({'plan': before})}.yaml"
        write_atomically(folder / "plans" / name, lambda to: _text(to, before))
    write_atomically(path, lambda to: _text(to, text))


_DIGEST = "# digest "


def _signed(text: str) -> str:
    """With a digest in a comment: a flipped digit is still YAML, and another plan."""
    return f"{text}{_DIGEST}{content_id({'plan': text})}\n"


def as_launched(folder: Path) -> bool | None:
    """Is the folder's plan the one that was launched? False: changed by hand, or damaged. None: it has no digest."""
    try:
        text = (folder / "plan.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    body, found, _ = text.rpartition(_DIGEST)
    return _signed(body) == text if found else None


def write_record(folder: Path, record: StackRecord) -> None:
    """Keep a stack's specification, by its id."""
    text = yaml.safe_dump(record.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    path = folder / "specs" / f"{record.id}.yaml"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, lambda to: _text(to, text))


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def read_record(folder: Path, stack: str) -> StackRecord:
    """A stack by its id; what cannot be read or does not fit its name is refused."""
    path = folder / "specs" / f"{stack}.yaml"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", stack):
        raise InputError(f"{stack[:60]!r} is no stack's id", hint="`etastar launch --print-commands` lists them")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        spec = content.get("spec") if isinstance(content, Mapping) else None
        if not isinstance(content, Mapping) or not isinstance(spec, Mapping):
            raise InputError(f"{path}: not a stack's record", hint="launch the plan again")
        record = StackRecord.model_validate({**content, "spec": build_spec(spec, where=str(path))})
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml"))[:20]) or "none"
        raise InputError(f"{path}: no such stack in the study", hint=f"there are {known}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        reason = str(error).splitlines()[0][:100]
        raise InputError(f"{path}: cannot be read ({reason})", hint="launch the plan again") from None
    except EtastarError as error:  # a value that no specification can have
        said = error.message.removeprefix(f"{path}: ")
        raise InputError(f"{path}: {said}", hint="launch the plan again") from None
    expected = record.spec.stack_id(data_identity=record.corpus)
    if not record.id == expected == stack:
        raise InputError(
            f"{path}: holds the stack {expected}, not what its name says", hint="remove it and launch the plan again"
        )
    return record


def all_records(folder: Path) -> list[StackRecord]:
    """Every readable stack of a study."""
    found = []
    for path in sorted((folder / "specs").glob("*.yaml")):
        try:
            found.append(read_record(folder, path.stem))
        except EtastarError:
            continue  # `etastar verify` names it; launching writes it again
    return found


class RunIndex:
    """Which run ids are in the store; a part is read again only when it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}

    def there(self) -> set[str]:
        """Run ids with a row in a readable part."""
        runs: set[str] = set()
        for path in parts(self.folder, "runs"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            stamp = (stat.st_mtime_ns, stat.st_size)
            if self._seen.get(path, (None,))[0] != stamp:
                table = read_part(path)
                names = frozenset() if table is None else frozenset(table["run"].drop_null().to_pylist())
                self._seen[path] = (stamp, names)
            runs |= self._seen[path][1]
        return runs
