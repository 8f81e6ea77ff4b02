"""Is every decay branch, wherever it leaves the trunk and however long it is, an uninterrupted run bit for bit?"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from counts import SEED, Table, counted
from tiny import CORPUS, differences, spec

from etastar.store import read_runs
from etastar.train.engine import Engine
from etastar.train.loop import train
from etastar.train.optim import step_table
from etastar.train.spec import TrainSpec

KINDS = ("adamw", "adamh", "muonh", "adam")


class Silent:
    """Says nothing."""

    def message(self, text: str) -> None: ...

    def progress(self, progress: object) -> None: ...

    def evaluated(self, horizon: int, cells: object) -> None: ...


def _uninterrupted(one: TrainSpec, horizon: int, device: str) -> dict[str, list[float]]:
    """Every step in one go: no trunk, no checkpoint, no store."""
    engine = Engine(one, device=torch.device(device), micro_batch=one.batch_sequences)
    state = engine.fresh_state()
    table = step_table(one, start=0, stop=horizon, horizon=horizon, device=engine.device)
    for step in range(horizon):
        batch = CORPUS.batch(seed=one.seed, step=step, sequences=one.batch_sequences, length=one.model.context)
        engine.step(state, torch.from_numpy(batch).to(engine.device), table[step])
    length = one.model.context
    held_out = torch.from_numpy(CORPUS.validation(sequences=one.eval_tokens // length, length=length)).to(engine.device)
    mean, plateau = state.tally.means()
    return {"loss": engine.evaluate(state, held_out).tolist(), "mean": mean.tolist(), "plateau": plateau.tolist()}


def _count(tmp_path: Path, pairs: int, device: str) -> dict[str, int]:
    """Trunks of random length, optimizer and decay, stopped and resumed; each branch against its run in one go."""
    rng = random.Random(SEED)
    done = differ = trunks = cut = 0
    while done < pairs:
        decay, kind = rng.randint(1, 9), rng.choice(KINDS)
        wanted = min(pairs - done, rng.randint(2, 5))
        horizons = sorted(rng.sample(range(decay + 3, decay + 30), wanted))
        one = spec(
            schedule={"decay_steps": decay}, horizons=horizons, seed=trunks, optimizer={"kind": kind},
            execution={
                "checkpoint_every": rng.randint(2, 20), "device": device, "precision": "fp32", "compile": "off",
                "deterministic": device == "cuda",  # where bits are promised
            },
        )  # fmt: skip
        study, finished = tmp_path / str(trunks), False
        while not finished:  # stopped and started again at random steps on the way
            left = rng.randint(3, 60)
            cut += 1
            count = iter(range(left))
            result = train(
                one, study, corpus=CORPUS, reporter=Silent(), should_stop=lambda c=count: next(c, None) is None
            )
            finished = result.finished
        rows = read_runs(study).to_pylist()
        for horizon in horizons:
            plain = _uninterrupted(one, horizon, device)
            for k, lr in enumerate(one.lrs):
                (row,) = (row for row in rows if row["steps"] == horizon and row["lr"] == lr)
                mine = (row["loss"], row["mean_eff_lr"], row["plateau_eff_lr"])
                theirs = tuple(plain[name][k] for name in ("loss", "mean", "plateau"))
                same = all(a == b or (a is None and not b > 0) for a, b in zip(mine, theirs, strict=True))
                if not same:
                    print(f"trunk {trunks} ({kind}), horizon {horizon}, decay {decay}, lr {lr}: {mine} {theirs}")
                differ += not same
        done += len(horizons)
        trunks += 1
    return {"pairs": done, "trunks": trunks, "stops on the way": cut - trunks, "differing": differ}


GOAL = "200 (step, decay) pairs equal to uninterrupted runs, bitwise"


def test_branches_are_uninterrupted_runs(tmp_path: Path, full: bool) -> None:
    torch.set_num_threads(1)
    pairs = counted("branches", full=200, quick=6, is_full=full)
    with Table(7, "Branches", goal=GOAL, is_full=full) as table:
        found = _count(tmp_path, pairs, "cpu")
        table.add(**found, optimizers=len(KINDS))
        assert found["differing"] == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_branches_are_uninterrupted_runs_on_cuda(tmp_path: Path) -> None:
    with Table(7, "Branches, CUDA", goal=f"a share of {GOAL}", is_full=True) as table:
        try:
            found = _count(tmp_path, counted("branches", full=20, quick=0, is_full=True), "cuda")
        finally:
            torch.use_deterministic_algorithms(False)
        table.add(**found, device=torch.cuda.get_device_name())
        assert found["differing"] == 0


def test_steps_that_are_taken_again_replace_their_rows(tmp_path: Path) -> None:
    """Stopped within a stretch, its checkpoint lost: the stretch is taken again, and its rows are there once."""
    torch.set_num_threads(1)
    left = iter(range(4))
    stopped = train(
        spec(), tmp_path / "a", corpus=CORPUS, reporter=Silent(), should_stop=lambda: next(left, None) is None
    )
    assert not stopped.finished
    for path in (tmp_path / "a").rglob("*.safetensors"):
        path.unlink()
    train(spec(), tmp_path / "a", corpus=CORPUS, reporter=Silent())
    train(spec(), tmp_path / "b", corpus=CORPUS, reporter=Silent())
    assert differences(tmp_path / "a", tmp_path / "b") == []
