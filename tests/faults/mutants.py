"""Which bugs must the suites catch? Thirty of them, each a change of a few words in a named function.

`plant` compiles the changed source and puts its code into the living function, so that every module that has
imported it runs the bug. A mutant whose words are no longer in the function fails: it has to be written anew.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

KILL = "tests/faults/test_kill.py::test_kill_9_costs_nothing[full]"
POWER = "tests/faults/test_power_loss.py::test_no_acknowledged_row_is_lost[full-{}]"
FLIP = "tests/faults/test_cut_and_flip.py::test_damage_is_named_and_never_believed[full-{}]"
LINES = "tests/faults/test_io_errors.py::test_a_line_that_failed_never_spoils_the_next[quick]"
BRANCH = "tests/faults/test_many_branches.py::test_branches_are_uninterrupted_runs[quick]"
RESUME = "tests/train/test_loop.py::test_time_that_is_up_loses_nothing"


@dataclass(frozen=True)
class Mutant:
    """A planted bug: in `function` (module:name), `words` become `instead`; `caught_by` must then fail."""

    function: str
    words: str
    instead: str
    caught_by: str

    def _function(self) -> Any:
        module, _, names = self.function.partition(":")
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = inspect.getattr_static(found, name)
        return inspect.unwrap(getattr(found, "__func__", found))

    def source(self) -> str:
        """The function with the bug; an error where it no longer applies."""
        text = textwrap.dedent(inspect.getsource(self._function()))
        if text.count(self.words) != 1:
            raise LookupError(f"{self.function} holds {self.words!r} {text.count(self.words)} times: write it anew")
        return text.replace(self.words, self.instead)

    def fingerprint(self) -> str:
        """Of the function with the bug, and of the test that caught it."""
        return hashlib.sha256(f"{self.source()}\0{self.caught_by}".encode()).hexdigest()

    def plant(self) -> None:
        """Put the bug into this process."""
        function = self._function()
        lines = self.source().splitlines()
        start = next(k for k, line in enumerate(lines) if line.startswith("def "))
        space: dict[str, Any] = {}
        header = "from __future__ import annotations\n"
        exec(
            compile(header + "\n".join(lines[start:]), f"<mutant of {self.function}>", "exec"),
            function.__globals__,
            space,
        )
        function.__code__ = space[function.__name__].__code__


MUTANTS = {
    # what a power cut takes
    "no fsync of content": Mutant(
        "etastar.store.disk:write_atomically", "os.fsync(written.fileno())", "pass", POWER.format("rewrite")),
    "remove, then rename": Mutant(
        "etastar.store.disk:write_atomically", "temporary.replace(path)",
        "path.unlink(missing_ok=True), temporary.replace(path)", POWER.format("rewrite")),
    "no fsync of the folder": Mutant(
        "etastar.store.disk:flush_folder", "os.fsync(descriptor)", "pass", POWER.format("rewrite")),
    "a new folder's name is not synced": Mutant(
        "etastar.store.disk:make_folder", "flush_folder(one.parent)", "pass", POWER.format("rewrite")),
    "a folder that is there is trusted": Mutant(
        "etastar.store.disk:make_folder", "fresh or (", "fresh and (",
        "tests/store/test_disk.py::test_a_folder_of_one_that_was_killed_is_synced_once"),
    "a line is not synced": Mutant(
        "etastar.store.journal:Journal.write", "os.fsync(self._file)", "pass", POWER.format("journal")),
    "a journal's name is not synced": Mutant(
        "etastar.store.journal:Journal.write", "flush_folder(self.path.parent)", "pass", POWER.format("journal")),
    # what a failing disk does
    "a short write is believed": Mutant(
        "etastar.store.journal:_write_all", "while line:\n        line = line[os.write(descriptor, line) :]",
        "os.write(descriptor, line)", LINES),
    "a torn line hides the next": Mutant(
        "etastar.store.journal:Journal.write", "with contextlib.suppress(OSError):\n            self.close()\n",
        "raise cannot_write(self.path.parent, error) from None\n",
        LINES),
    # what a flipped bit does
    "a line's checksum is not looked at": Mutant(
        "etastar.store.journal:_checked", "check == b'%08x\"}' % zlib.crc32(start)", "True", FLIP.format("journal")),
    "a checkpoint's digest is not looked at": Mutant(
        "etastar.store.tensor_digest:check_tensors", "if digest.hexdigest() != written", "if False",
        FLIP.format("checkpoint")),
    "a part's digest is not looked at": Mutant(
        "etastar.store.parts:read_parquet", "page_checksum_verification=True", "page_checksum_verification=False",
        "tests/faults/test_mutants.py::test_a_part_is_checked_page_by_page"),
    "a plan's digest is not looked at": Mutant(
        "etastar.launch.study:as_launched", "return _signed(body) == text if found else None", "return True",
        FLIP.format("plan")),
    # what a resume forgets
    "the first moment is not saved": Mutant(
        "etastar.train.state:TrainState.tensors", '"first": self.optimizer.first,', "", RESUME),
    "the mean of eff_lr starts again": Mutant(
        "etastar.train.state:TrainState.tensors", '"tally": self.tally.tensors(),', "", RESUME),
    "rows of steps taken again stay": Mutant(
        "etastar.train.recorder:Recorder._cut_overlaps", "path.unlink(missing_ok=True)", "pass",
        "tests/faults/test_many_branches.py::test_steps_that_are_taken_again_replace_their_rows"),
    "the needed trunk is dropped": Mutant(
        "etastar.train.checkpoint:expendable", "needed.add(before[-1])", "pass",
        "tests/train/test_loop.py::test_retention_follows_the_branch_graph"),
    "losses are sorted before they meet their rates": Mutant(
        "etastar.train.recorder:Recorder.record", "zip(spec.lrs, loss.tolist(), strict=True)",
        "zip(spec.lrs, sorted(loss.tolist()), strict=True)",
        "tests/train/test_loop.py::test_branch_equals_a_run_that_never_heard_of_branches"),
    "the batch does not know its epoch": Mutant(
        "etastar.train.corpus_order:shuffled", "keys = _keys(seed=seed, epoch=epoch)", "keys = _keys(seed=seed, epoch=0)",
        "tests/train/test_data.py::test_epochs_and_seeds_are_shuffled_anew"),
    # who may write
    "a living holder is robbed": Mutant(
        "etastar.store.lease:_try", "if newest and _alive(folder, name, newest) is not None:", "if False:",
        "tests/store/test_lease.py::test_a_claim_is_held_by_one"),
    "a recycled process number is a holder": Mutant(
        "etastar.store.lease:_alive", 'born is not None and born == content.get("born")', "born is not None",
        "tests/store/test_lease.py::test_a_process_number_that_another_has_now_is_no_holder"),
    "a contradiction is merged": Mutant(
        "etastar.store.merge:_merge_runs", "if not same_values(before, row):", "if False:",
        "tests/store/test_store_verify.py::test_a_contradiction_names_the_run_and_writes_nothing"),
    # the maths
    "the decay is off by one": Mutant(
        "etastar.train.schedule:lr_factor", "return (horizon - step) / decay", "return (horizon - step - 1) / decay",
        "tests/train/test_schedule.py"),
    "a branch leaves two steps late": Mutant(
        "etastar.train.schedule:leaves_trunk_at", "horizon - schedule.decay_of(horizon)",
        "horizon - schedule.decay_of(horizon) + 2", BRANCH),
    "beta1 and beta2 are swapped": Mutant(
        "etastar.train.optim:moved", "first.lerp_(grad, 1 - rule.beta1)", "first.lerp_(grad, 1 - rule.beta2)",
        "tests/train/test_optim.py::test_adam_equals_torch"),
    "the bias correction is a step behind": Mutant(
        "etastar.train.optim:step_table", "1 - beta ** (step + 1)", "1 - beta ** (step + 2)",
        "tests/train/test_optim.py::test_adam_equals_torch"),
    "eff_lr by 2 - 2cos in fp32": Mutant(
        "etastar.train.statistics:effective_lr", "turned_sq = (step_sq - stretch.square()).clamp_min(0)",
        "turned_sq = (before * after * (2 - 2 * ((weight_sq + weight_dot_step).float() / (before * after).float()))).clamp_min(0).double()",
        "tests/train/test_statistics.py"),
    "a frozen model is counted on": Mutant(
        "etastar.train.statistics:Tally.add", "self.steps.add_(counted)", "self.steps.add_(torch.ones_like(counted))",
        "tests/train/test_statistics.py::test_a_frozen_models_tally_stands_still"),
    "weights of the fit are inverted": Mutant(
        "etastar.estimate.polynomial:make_design", "root = np.sqrt(weight / np.max(weight, axis=1, keepdims=True))",
        "root = np.sqrt(np.where(there, np.max(weight, axis=1, keepdims=True) / np.where(there, weight, 1), 0))",
        "tests/estimate/test_polynomial.py::test_operator_equals_weighted_polyfit"),
    "a diverged row is fitted": Mutant(
        "etastar.estimate.cells:_block", '(rows["status"] == RunStatus.DIVERGED.value).to_numpy() | ~np.isfinite(loss)', "~np.isfinite(loss)",
        "tests/faults/test_diverged.py"),
    "a maximum is taken for the minimum": Mutant(
        "etastar.estimate.polynomial:minimiser", "denominator = c2 + root", "denominator = c2 - root",
        "tests/estimate/test_polynomial.py::test_finds_the_minimum_of_a_cubic_anywhere"),
}  # fmt: skip
