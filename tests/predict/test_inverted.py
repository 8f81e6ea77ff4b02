"""The inverted strategy: the theory's map by each road, the target's own settings, and what it refuses."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from etastar.errors import InputError, SpecError
from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.flags import Flag
from etastar.laws.loglinear import Axis
from etastar.predict.backtest import backtest
from etastar.predict.calibration import study_report
from etastar.predict.diagnosis import diagnose_study
from etastar.predict.invert import Source
from etastar.predict.logged import LoggedRows
from etastar.predict.recommend import answer_from
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.predict.solve import solve_weight_decay
from etastar.predict.strategies import Evidence, predict_strategy
from etastar.predict.trunks import paths_of
from etastar.records import conform_runs, conform_trajectories
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, World
from etastar.theory.planned import Matrices, PlannedRun, mean_eff_lr
from etastar.theory.recursion import run_recursion
from etastar.theory.schedules import Schedule
from worlds import group_of, horizons, octaves

QUICK = Options(replicates=100)
BATCH, WARMUP, DECAY = 1000.0, 50, 100
STEPS = (500, 1000, 2000, 4000)
W0, U, BETAS = np.array([1.0, 2.0]), np.array([2.5, 3.0]), np.array([0.9, 0.95])
LRS = 2.0 ** np.arange(-10.0, -2.75, 0.5)


def planned(steps, *, trunk=False, **changes):
    decay = 0 if trunk else DECAY
    schedule = Schedule(kind="constant" if trunk else "wsd", steps=steps, warmup_steps=WARMUP, decay_steps=decay)
    return PlannedRun(**({"schedule": schedule, "weight_decay": 0.1} | changes))


def truth_lr(log2_eff_lr, run):
    """The inverse, by a fine table of the recursion that made the study."""
    grid = np.arange(-13.0, -2.0, 0.1)
    some = Matrices(weight_norm0=W0, update_norm=U, beta1=BETAS)
    return float(np.interp(log2_eff_lr, np.log2(mean_eff_lr(2.0**grid, run=run, matrices=some)), grid))


def law(steps):
    return -6.0 - 0.35 * (np.log2(steps) - 10)


@pytest.fixture(scope="module")
def study():
    """Runs and trajectories of two matrices that obey the recursion, with a straight η_eff* law."""
    some = Matrices(weight_norm0=W0, update_norm=U, beta1=BETAS)
    rng = np.random.default_rng(0)
    rows, logged = [], []
    for steps in STEPS:
        for lr, eff in zip(LRS, mean_eff_lr(LRS, run=planned(steps), matrices=some, exact=True), strict=True):
            loss = 3.0 - 0.1 * np.log2(steps / 500) + 0.03 * (np.log2(eff) - law(steps)) ** 2
            rows.append(
                {
                    "params": 1e6, "tokens": steps * BATCH, "lr": lr, "loss": loss + 2e-4 * rng.standard_normal(),
                    "mean_eff_lr": eff, "optimizer": "adamw", "weight_decay": 0.1, "beta1": 0.9,
                    "batch_tokens": BATCH, "schedule": "wsd", "steps": steps, "warmup_steps": WARMUP,
                    "decay_steps": DECAY, "seed": 0, "trunk": f"t{lr:.6g}", "run": f"r{lr:.6g}-{steps}",
                }
            )  # fmt: skip
    end = max(STEPS) - DECAY
    walked = run_recursion(
        planned(end, trunk=True).factors(),
        lr=LRS[:, None],
        weight_decay=0.1,
        beta1=BETAS,
        weight_norm0=W0,
        update_norm=U,
    )
    for k, lr in enumerate(LRS):
        for j, weight in enumerate(("a", "b")):
            logged += [
                {
                    "run": f"t{lr:.6g}", "step": t, "weight": weight, "update_norm": U[j],
                    "weight_norm": walked.weight_norm[t, k, j], "eff_lr": walked.eff_lr[t, k, j],
                    "update_dot_weight": walked.update_dot_weight[t, k, j],
                }
                for t in range(0, end, 10)
            ]  # fmt: skip
    runs = conform_runs(pa.Table.from_pylist(rows)).table
    return runs, conform_trajectories(pa.Table.from_pylist(logged)).table


def evidence_of(study, *, trajectories=True, **settings):
    runs, logged = study
    (group,) = build_groups(runs)
    paths = paths_of(runs, LoggedRows.of_table(logged)) if trajectories else {}
    asked = sweep_settings(group).model_copy(update=settings) if settings else None
    return Evidence(group, estimate_group(group, QUICK), paths=paths, settings=asked)


TARGET = Scale(1e6, 16_000 * BATCH)


def inverted(evidence, target=TARGET):
    return predict_strategy(evidence, Axis.DATA, Quantity.EFF_LR, target, inverted=True, settings=evidence.settings)


def test_the_calibrated_recursion_inverts_to_the_lr_that_made_the_study(study):
    said = inverted(evidence_of(study))
    assert said.source is Source.TRAJECTORIES
    assert Flag.THEORY_MAP in said.flags
    assert said.log2_value == pytest.approx(law(16_000), abs=0.05)
    assert said.log2_lr == pytest.approx(truth_lr(said.log2_value, planned(16_000)), abs=0.02)
    # the interval is that of η_eff carried through the map: wider by the local slope
    low, high = said.interval(0.9)
    ends = said.interval(0.9, of_lr=True)
    assert ends[0] == pytest.approx(truth_lr(low, planned(16_000)), abs=0.05)
    assert ends[1] == pytest.approx(truth_lr(high, planned(16_000)), abs=0.05)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"weight_decay": 0.3}, {"weight_decay": 0.3}),
        ({"schedule": "cosine"}, {"schedule": Schedule(kind="cosine", steps=16_000, warmup_steps=WARMUP)}),
        (
            {"warmup_steps": 4000.0, "decay_steps": 2000.0},
            {"schedule": Schedule(steps=16_000, warmup_steps=4000, decay_steps=2000)},
        ),
    ],
)
def test_the_target_s_own_settings_are_taken(study, settings, changes):
    evidence = evidence_of(study, **settings)
    said = inverted(evidence)
    assert said.log2_lr == pytest.approx(truth_lr(said.log2_value, planned(16_000, **changes)), abs=0.03)
    found = answer_from(evidence, TARGET, 0.9)
    assert found.recommended is not None
    assert found.recommended.inverted
    assert Flag.OTHER_SETTINGS in found.recommended.flags
    for name, value in settings.items():
        assert found.recommended.conditions[name] == value
    plain = [p for p in found.predictions if not p.inverted and p.log2_lr is not None]
    assert plain
    assert all(Flag.SWEEP_SETTINGS in p.flags for p in plain)


def test_another_batch_is_flagged_as_outside_the_evidence(study):
    found = answer_from(evidence_of(study, batch_tokens=4 * BATCH), TARGET, 0.9)
    assert found.recommended is not None
    assert Flag.OTHER_BATCH in found.recommended.flags


def test_the_backtest_calibrates_on_no_more_than_it_may_see(study):
    runs, logged = study
    # what the longest runs' trunk did beyond the shorter ones' horizons is spoilt: a back-test must not notice
    late = np.asarray(logged["step"]) > 2000 - DECAY
    spoilt = np.where(late, 10.0, 1.0) * np.asarray(logged["weight_norm"])
    broken = logged.set_column(logged.column_names.index("weight_norm"), "weight_norm", pa.array(spoilt))
    held = [
        backtest(evidence_of((runs, some)), Axis.DATA, Quantity.EFF_LR, Scale(1e6, 5000 * BATCH), inverted=True)
        for some in (logged, broken)
    ]
    largest = [next(t for t in one.trials if t.scale.tokens == 4000 * BATCH) for one in held]
    assert largest[0] == largest[1]


def test_without_trajectories_the_closed_form_is_the_road():
    world = World(trunk_noise=0.0005)
    group = group_of(world, Grid(widths=(1024,), tokens=horizons(6), log2_lrs=octaves(-16, -6, 1)))
    evidence = Evidence(group, estimate_group(group, QUICK))
    target = Scale(float(gpt_params(1024)), 80e9)
    said, plain = (predict_strategy(evidence, Axis.DATA, Quantity.EFF_LR, target, inverted=i) for i in (True, False))
    assert said.source is Source.RUNS
    assert said.log2_lr == plain.log2_lr
    lighter = Evidence(
        group, evidence.estimates, settings=sweep_settings(group).model_copy(update={"weight_decay": 0.0})
    )
    other = predict_strategy(lighter, Axis.DATA, Quantity.EFF_LR, target, inverted=True, settings=lighter.settings)
    wanted = World(weight_decay=0.0).log2_lr_of(other.log2_value, 80e9)
    assert other.log2_lr == pytest.approx(float(wanted), abs=0.02)


def test_a_fixed_norm_is_the_identity_times_the_schedule_s_mean(study):
    runs, _ = study
    rows = runs.to_pylist()
    for row in rows:
        mean = planned(row["steps"]).factors().mean()
        row |= {"optimizer": "adamh", "mean_eff_lr": row["lr"] * mean, "weight_decay": None}
        row["loss"] = 3.0 + 0.03 * (np.log2(row["mean_eff_lr"]) + 8.0) ** 2
    evidence = evidence_of((conform_runs(pa.Table.from_pylist(rows)).table, None), trajectories=False)
    said = inverted(evidence)
    assert said.source is Source.IDENTITY
    assert 2.0 ** (said.log2_value - said.log2_lr) == pytest.approx(planned(16_000).factors().mean(), rel=1e-9)


def test_impossible_targets_are_answered_in_words(study):
    evidence = evidence_of(study)
    assert isinstance(evidence.theory.sweep, RunSettings)
    with pytest.raises(SpecError, match="warm-up"):
        evidence.theory.sweep.model_copy(update={"warmup_steps": 1e6}).planned(TARGET.tokens)
    short = inverted(evidence, Scale(1e6, 40 * BATCH))
    assert short.log2_lr is None
    assert "warm-up" in short.reason
    # an η_eff that no LR has at λ = 0: the law asks for more than 1/√(κt)
    still = evidence_of(study, weight_decay=0.0)
    eff = still.estimates[Quantity.EFF_LR]
    object.__setattr__(eff, "log2_values", eff.log2_values + 6.0)
    said = inverted(still)
    assert said.log2_lr is None
    assert "above the" in said.reason


def test_a_weight_decay_is_solved_for(study):
    evidence = evidence_of(study)
    said = inverted(evidence)
    lr = float(2.0 ** (said.log2_lr - 1.0))
    found = solve_weight_decay(evidence, said, lr, 0.9)
    assert found.value > 0.1
    back = truth_lr(said.log2_value, planned(16_000, weight_decay=found.value))
    assert back == pytest.approx(np.log2(lr), abs=0.03)
    with pytest.raises(SpecError, match="decay only raises"):
        solve_weight_decay(evidence, replace(said, log2_value=-12.0, value_redraws=None), lr, 0.9)


def test_regimes_and_the_bend_of_the_study(study):
    evidence = evidence_of(study)
    said = inverted(evidence)
    found = diagnose_study(evidence, TARGET, said.log2_lr, 0.9)
    assert found.reason is None
    assert len(found.swept) == len(LRS)
    assert found.target.relaxations == pytest.approx(2 * 2.0**said.log2_lr * 0.1 * 16_000)
    assert found.target.timescale == pytest.approx(2 / found.target.relaxations)
    exact = np.array([truth_lr(law(t), planned(t)) for t in (*STEPS, 16_000)])
    np.testing.assert_allclose(found.bend.log2_lr, exact, atol=0.12)
    x = np.log2([*STEPS, 16_000])
    line = np.polyfit(x[:-1], exact[:-1], 1)
    assert found.bend.octaves_at_target == pytest.approx(exact[-1] - np.polyval(line, x[-1]), abs=0.1)
    low, high = found.bend.measured_interval
    assert low - 0.02 <= found.bend.curvature <= high + 0.02
    assert "straight η law" in found.trust


@pytest.mark.parametrize(
    ("world", "sign"),
    [
        (World(), 1.0),  # the paper's: 2ηλT shrinks along the optimum
        (World(slope_tokens=-0.1, batch_tokens=5e6, warmup_steps=100, decay_steps=500, log2_eff_lr=-7.0), -1.0),
    ],
)
def test_the_predicted_bend_has_either_sign(world, sign):
    group = group_of(world, Grid(widths=(1024,), tokens=horizons(7), log2_lrs=octaves(-16, -4, 1)))
    evidence = Evidence(group, estimate_group(group, QUICK))
    target = Scale(float(gpt_params(1024)), 100e9)
    found = diagnose_study(evidence, target, -12.0, 0.9).bend
    d = np.append(np.log2(horizons(7)), np.log2(100e9))
    exact = world.log2_optimal_lr(target.params, 2.0**d)
    missed = exact[-1] - np.polyval(np.polyfit(d[:-1], exact[:-1], 1), d[-1])
    assert np.sign(missed) == np.sign(found.octaves_at_target) == np.sign(found.curvature) == sign
    assert found.octaves_at_target == pytest.approx(missed, abs=0.1)
    assert found.measured_curvature == pytest.approx(found.curvature, abs=0.03)


def test_the_report_finds_the_factors_that_made_the_study(study):
    evidence = evidence_of(study)
    report = study_report(evidence.theory, 1e6)
    np.testing.assert_allclose([fit.factor for fit in report.weights], (1 + BETAS) / (1 - BETAS), rtol=0.01)
    assert report.factor_theory == pytest.approx(19.0)  # of the β₁ = 0.9 that the runs table states
    for one in report.lrs:
        assert one.held_out_worst < 0.01
        assert one.figures.weight_norm_fitted < 0.01
    assert report.no_decay is None


def test_trajectories_of_other_runs_are_refused(study):
    runs, logged = study
    other = logged.set_column(0, "run", pa.array(["x"] * logged.num_rows))
    with pytest.raises(InputError, match="name no run"):
        paths_of(runs, LoggedRows.of_table(other))


def test_cosine_runs_without_a_trunk_are_calibrated_one_by_one():
    some = Matrices(weight_norm0=W0, update_norm=U, beta1=BETAS)
    rows, logged = [], []
    for steps in STEPS[1:]:
        run = planned(steps, schedule=Schedule(kind="cosine", steps=steps, warmup_steps=WARMUP))
        walked = run_recursion(
            run.factors(), lr=LRS[:, None], weight_decay=0.1, beta1=BETAS, weight_norm0=W0, update_norm=U
        )
        for k, (lr, eff) in enumerate(zip(LRS, mean_eff_lr(LRS, run=run, matrices=some, exact=True), strict=True)):
            name = f"r{k}-{steps}"
            rows.append(
                {
                    "params": 1e6, "tokens": steps * BATCH, "lr": lr, "mean_eff_lr": eff, "run": name, "trunk": name,
                    "loss": 3.0 - 0.1 * np.log2(steps) + 0.03 * (np.log2(eff) - law(steps)) ** 2, "schedule": "cosine",
                    "optimizer": "adamw", "weight_decay": 0.1, "beta1": 0.9, "batch_tokens": BATCH, "steps": steps,
                    "warmup_steps": WARMUP, "decay_steps": 0, "seed": 0,
                }
            )  # fmt: skip
            logged += [
                {"run": name, "step": t, "weight": weight, "update_norm": U[j], "eff_lr": walked.eff_lr[t, k, j],
                 "weight_norm": walked.weight_norm[t, k, j]}
                for j, weight in enumerate(("a", "b"))
                for t in range(0, steps, 20)
            ]  # fmt: skip
    tables = conform_runs(pa.Table.from_pylist(rows)).table, conform_trajectories(pa.Table.from_pylist(logged)).table
    said = inverted(evidence_of(tables))
    assert said.source is Source.TRAJECTORIES
    wanted = planned(16_000, schedule=Schedule(kind="cosine", steps=16_000, warmup_steps=WARMUP))
    assert said.log2_lr == pytest.approx(truth_lr(said.log2_value, wanted), abs=0.05)
    # without trajectories the closed form has nothing to say of a cosine, and says so
    blind = inverted(evidence_of(tables, trajectories=False))
    assert blind.log2_lr is None
    assert "cosine" in blind.reason or "wsd and constant" in blind.reason
