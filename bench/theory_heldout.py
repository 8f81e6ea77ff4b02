"""Does a calibration on early steps foresee η_eff of later steps, of a longer run, and the LR to type?

    python bench/theory_heldout.py RUNS.parquet TRAJECTORIES.parquet [--share 0.25 0.5] [--window 0.1]

For each share of the trunk that the calibration may see: η_eff(t) of the trunk's last quarter, matrix by
matrix; the mean η_eff of held-out horizons; the round trip η → measured mean η_eff → inverted η, with the
LR itself calibrated and left out. Then the figures of the paper's appendix, over every LR. LRs within one
octave of the horizon's lowest loss carry a star, and the targets are judged on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from etastar.errors import EtastarError
from etastar.records import conform_runs, conform_trajectories
from etastar.scale import format_lr
from etastar.theory.heldout import forecast_weight, judge_weight
from etastar.theory.invert import invert_eff_lr
from etastar.theory.letters import beta1_of_factor
from etastar.theory.network import Calibration, FromCalibration, calibrate
from etastar.theory.planned import PlannedRun, mean_eff_lr
from etastar.theory.schedules import Schedule
from etastar.theory.trajectories import Trajectory, trajectories_of
from etastar.theory.validate import correlation_figure, eff_lr_spread, update_norm_figure, weight_norm_figure

CURVE_TARGET, MEAN_TARGET, LR_TARGET = 0.05, 0.03, 0.1


@dataclass(frozen=True)
class Sweep:
    """The trunks of the longest horizon, LRs rising, and every horizon's runs in the same order."""

    lrs: np.ndarray
    trunks: tuple[tuple[Trajectory, ...], ...]
    horizons: dict[int, list[dict]]
    decays: Mapping[str, tuple[Trajectory, ...]]
    trunk_steps: int

    @property
    def one(self) -> dict:
        return self.horizons[max(self.horizons)][0]

    def planned(self, steps: int, *, trunk: bool = False) -> PlannedRun:
        """The run of a horizon, or the trunk: the same without its decay."""
        schedule = Schedule(
            kind="constant" if trunk else "wsd",
            steps=steps,
            warmup_steps=self.one["warmup_steps"],
            decay_steps=0 if trunk else self.one["decay_steps"],
        )
        independent = self.one.get("decay") == "independent"
        return PlannedRun(schedule=schedule, weight_decay=self.one["weight_decay"], independent_decay=independent)

    def near_optimum(self, horizon: int) -> np.ndarray:
        losses = np.array([run["loss"] for run in self.horizons[horizon]], float)
        return np.abs(np.log2(self.lrs / self.lrs[int(np.nanargmin(losses))])) < 1.001

    def measured_means(self, horizon: int) -> np.ndarray:
        """Mean η_eff of each run and matrix, (LRs, matrices): trunk, then decay, lines between logged steps."""
        means = np.empty((len(self.lrs), len(self.trunks[0])))
        for k, run in enumerate(self.horizons[horizon]):
            for j, (trunk, decay) in enumerate(zip(self.trunks[k], self.decays[run["run"]], strict=True)):
                start = horizon - run["decay_steps"]
                head, tail = trunk.every_step("eff_lr", 0, start), decay.every_step("eff_lr", start, horizon)
                means[k, j] = np.concatenate((head, tail)).mean()
        return means


def load(runs_path: Path, trajectories_path: Path) -> Sweep:
    runs = conform_runs(pq.read_table(runs_path)).table.to_pylist()
    matrices = trajectories_of(conform_trajectories(pq.read_table(trajectories_path)).table)
    horizons: dict[int, list[dict]] = {}
    for run in sorted(runs, key=lambda run: run["lr"]):
        horizons.setdefault(run["steps"], []).append(run)
    longest = horizons[max(horizons)]
    return Sweep(
        lrs=np.array([run["lr"] for run in longest]),
        trunks=tuple(matrices[run["trunk"]] for run in longest),
        horizons=dict(sorted(horizons.items())),
        decays=matrices,
        trunk_steps=max(horizons) - longest[0]["decay_steps"],
    )


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'|'.join('---' for _ in head)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def verdict(what: str, near: np.ndarray, errors: np.ndarray, target: float, unit: str = "%") -> None:
    worst = float(np.max(np.abs(errors[near])))
    word = "met" if worst <= target else "missed"
    scale, digits = (100, 2) if unit == "%" else (1, 3)
    print(
        f"{what}: {word} at the starred LRs (worst {worst * scale:.{digits}f} {unit}, target {target * scale:g} {unit})"
    )


def curves(sweep: Sweep, network: Calibration, stop: int) -> None:
    """η_eff(t) of the last quarter, in eight stretches: each matrix' worst one."""
    run, last, end = network.run, max(sweep.horizons), sweep.trunk_steps
    begin, near = 3 * end // 4, sweep.near_optimum(last)
    rows, medians, worsts, means = [], [], [], []
    for k, (lr, matrices) in enumerate(zip(sweep.lrs, sweep.trunks, strict=True)):
        judged = [
            judge_weight(fit, one, run=run, start=begin, stop=end)
            for fit, one in zip(network.fits[k], matrices, strict=True)
        ]
        errors = np.array([each.eff_lr_error for each in judged])
        whole, without_u = network_bias(network, k, matrices, begin, end)
        over = [each for each, error in zip(judged, errors, strict=True) if error > CURVE_TARGET]
        blame = ", ".join(
            f"{sum(each.cause == name for each in over)} {name}"
            for name in ("correlation", "update norm")
            if any(each.cause == name for each in over)
        )
        medians.append(np.median(errors))
        worsts.append(errors.max())
        means.append(whole)
        rows.append(
            (
                f"{format_lr(lr)}{' *' if near[k] else ''}",
                percent(medians[-1]),
                f"{percent(worsts[-1])} ({judged[int(errors.argmax())].weight})",
                f"{len(over)} of {len(errors)}",
                blame or "none",
                percent(whole),
                percent(whole - without_u),
                percent(without_u),
            )
        )
    show(
        f"η_eff(t) on steps {begin}–{end} from steps before {stop}",
        ("lr", "median matrix", "worst matrix", "above 5 %", "why", "mean over matrices", "of it U", "correlation"),
        rows,
    )
    print()
    verdict("median matrix", near, np.array(medians), CURVE_TARGET)
    verdict("worst matrix", near, np.array(worsts), CURVE_TARGET)
    verdict("mean over matrices", near, np.array(means), CURVE_TARGET)


def network_bias(
    network: Calibration, k: int, matrices: Sequence[Trajectory], begin: int, end: int
) -> tuple[float, float]:
    """Relative error of the mean over matrices and steps: as forecast, and with the measured ‖u_t‖ put in."""
    sums = np.zeros(3)
    for fit, one in zip(network.fits[k], matrices, strict=True):
        held = one.step[(one.step >= begin) & (one.step < end)]
        for column, measured in enumerate((None, one)):
            _, rates = forecast_weight(fit, run=network.run, stop=end, measured=measured)
            sums[column] += rates[held - fit.fit_stop].mean()
        sums[2] += one.eff_lr[np.isin(one.step, held)].mean()
    return float(sums[0] / sums[2] - 1.0), float(sums[1] / sums[2] - 1.0)


def horizon(sweep: Sweep, network: Calibration, steps: int, stop: int) -> None:
    """Mean η_eff of a whole run that is longer than what was seen, and the LR found back from it."""
    run, near, measured = sweep.planned(steps), sweep.near_optimum(steps), sweep.measured_means(steps)
    each = np.stack(
        [
            mean_eff_lr(sweep.lrs, run=run, matrices=single(network, j).matrices_for(run)[0])
            for j in range(measured.shape[1])
        ],
        axis=1,
    )
    matrix_errors = np.abs(each / measured - 1.0)
    whole = each.mean(axis=1) / measured.mean(axis=1) - 1.0
    fresh = mean_eff_lr(sweep.lrs, run=run, matrices=FromCalibration(network, from_start=True))
    from_start = fresh / measured.mean(axis=1) - 1.0
    found = [inverted(network, run, wanted, lr) for wanted, lr in zip(measured.mean(axis=1), sweep.lrs, strict=True)]
    left = [
        inverted(without(network, k), run, wanted, lr)
        for k, (wanted, lr) in enumerate(zip(measured.mean(axis=1), sweep.lrs, strict=True))
    ]
    ends = (0, len(sweep.lrs) - 1)
    rows = (
        (
            f"{format_lr(lr)}{' *' if near[k] else ''}",
            f"{measured[k].mean():.3e}",
            percent(whole[k]),
            percent(float(np.median(matrix_errors[k]))),
            percent(matrix_errors[k].max()),
            percent(from_start[k]),
            f"{found[k][0]:+.3f}",
            f"{left[k][0]:+.3f}{' (beyond the rest)' if k in ends else ''}",
            f"{found[k][1]:.2f}",
        )
        for k, lr in enumerate(sweep.lrs)
    )
    show(
        f"Mean η_eff of the {steps}-step runs from steps before {stop}, and the LR found from it (octaves off)",
        (
            "lr",
            "measured",
            "mean over matrices",
            "median matrix",
            "worst matrix",
            "mean, from W₀",
            "inverted",
            "LR left out",
            "d log η/d log η_eff",
        ),
        rows,
    )
    print()
    verdict("mean over matrices", near, whole, MEAN_TARGET)
    verdict("median matrix", near, np.median(matrix_errors, axis=1), MEAN_TARGET)
    verdict("worst matrix", near, matrix_errors.max(axis=1), MEAN_TARGET)
    verdict("mean over matrices, from W₀ instead of the seen part", near, from_start, MEAN_TARGET)
    verdict("round trip", near, np.array([one[0] for one in found]), LR_TARGET, "octaves")
    inside = near.copy()
    inside[list(ends)] = False
    verdict("round trip, LR left out", inside, np.array([one[0] for one in left]), LR_TARGET, "octaves")


def inverted(network: Calibration, run: PlannedRun, wanted: float, lr: float) -> tuple[float, float]:
    """Octaves by which the LR found for a mean η_eff is off, and the slope there."""
    found = invert_eff_lr(float(wanted), run=run, matrices=network.matrices_for(run)[0])
    return float(np.log2(found.value / lr)), found.slope


def single(network: Calibration, j: int) -> Calibration:
    return Calibration(fits=tuple((row[j],) for row in network.fits), run=network.run)


def without(network: Calibration, k: int) -> Calibration:
    return Calibration(fits=network.fits[:k] + network.fits[k + 1 :], run=network.run)


def figures(sweep: Sweep, network: Calibration) -> None:
    """The appendix' figures over whole trunks: median matrix (worst matrix), each its median |error| over time."""
    near, warmup = sweep.near_optimum(max(sweep.horizons)), sweep.one["warmup_steps"]
    rows = []
    for k, (lr, matrices) in enumerate(zip(sweep.lrs, sweep.trunks, strict=True)):
        rest = {"lr": float(lr), "run": network.run, "warmup_steps": warmup}
        fitted = [float(beta1_of_factor(fit.factor)) for fit in network.fits[k]]
        given = [sweep.one["beta1"]] * len(matrices)
        found = [[update_norm_figure(one, warmup_steps=warmup).goodness for one in matrices]]
        for figure in (correlation_figure, weight_norm_figure):
            found.extend(
                [figure(m, beta1=b, **rest).goodness for m, b in zip(matrices, betas, strict=True)]
                for betas in (given, fitted)
            )
        spread = eff_lr_spread(matrices, warmup_steps=warmup)
        factors = np.array([fit.factor for fit in network.fits[k]])
        rows.append(
            (
                f"{format_lr(lr)}{' *' if near[k] else ''}",
                *(f"{percent(float(np.median(one)))} ({percent(max(one))})" for one in found),
                f"{np.min(factors):.0f} – {np.median(factors):.0f} – {np.max(factors):.0f}",
                f"{spread.spread_octaves:.2f} ({spread.widest_octaves:.2f})",
                f"{spread.goodness:.2f}",
            )
        )
    theory = network.fits[0][0].factor_theory
    show(
        f"The appendix' figures over the trunk: median matrix (worst matrix); κ by theory {theory:.0f}",
        (
            "lr",
            "‖u‖ constant",
            "−⟨u,w⟩/‖u‖, β₁",
            "fitted κ",
            "‖w‖², β₁",
            "fitted κ",
            "κ least – median – most",
            "spread of η_eff, octaves (widest)",
            "correlation with the mean",
        ),
        rows,
    )


def report(sweep: Sweep, shares: Sequence[float], window: float | None) -> None:
    run = sweep.planned(max(sweep.horizons), trunk=True)
    trunks = list(zip(sweep.lrs.tolist(), sweep.trunks, strict=True))
    beta1, warmup, decay = (sweep.one[name] for name in ("beta1", "warmup_steps", "decay_steps"))

    def calibrated(stop: int) -> Calibration:
        return calibrate(trunks, run=run, beta1=beta1, fit_stop=stop, window=window, warmup_steps=warmup)

    *shorter, longest = sweep.horizons
    print(f"{len(sweep.lrs)} LRs, {len(sweep.trunks[0])} matrices, trunk of {sweep.trunk_steps} steps")
    for steps, runs in sweep.horizons.items():
        logged = np.array([one["mean_eff_lr"] for one in runs], float)
        off = np.max(np.abs(sweep.measured_means(steps).mean(axis=1) / logged - 1.0))
        print(f"{steps} steps: mean η_eff from logged steps is within {percent(off)} of the runs table's")
    for share in shares:
        stop = int(share * sweep.trunk_steps)
        network = calibrated(stop)
        curves(sweep, network, stop)
        horizon(sweep, network, longest, stop)
    for seen, held in zip(shorter, [*shorter[1:], longest], strict=True):
        horizon(sweep, calibrated(seen - decay), held, seen - decay)
    figures(sweep, calibrated(sweep.trunk_steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("trajectories", type=Path)
    parser.add_argument("--share", type=float, nargs="+", default=[0.25, 0.5], help="of the trunk that may be seen")
    parser.add_argument(
        "--window", type=float, default=None, help="of the seen steps after warm-up, fitted on; default: auto"
    )
    given = parser.parse_args()
    try:
        report(load(given.runs, given.trajectories), given.share, given.window)
    except EtastarError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
