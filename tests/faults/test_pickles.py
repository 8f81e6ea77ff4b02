"""Is a pickle, or YAML with its tags obeyed, ever loaded? The syntax tree of every source file says."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))


SOURCE = Path(__file__).parents[2] / "src"
FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# with a loader derived from SafeLoader, which obeys no tag (test_damage says so)
KNOWN = {("importers/hparams.py", "yaml.load")}


def unpickles(text: str) -> list[str]:
    """Whatever in a source text could load a pickle, or YAML with its tags obeyed."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN:
            found.append(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            if (owner, name) in {("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load")}:
                found.append(f"{owner}.{name}")
            elif "pickle" in name:
                found.append(name)
            elif any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
                found.append("allow_pickle")
    return found


def test_pickles_are_never_loaded() -> None:
    found = {
        (str(path.relative_to(SOURCE / "etastar")), what)
        for path in SOURCE.rglob("*.py")
        for what in unpickles(path.read_text(encoding="utf-8"))
    }
    assert found <= KNOWN


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from dill import loads", "torch.load(p)", "yaml.load(f, Loader=x)", "np.load(p, allow_pickle=True)",
     "x.read_pickle(p)"],
)  # fmt: skip
def test_the_watch_over_pickles_sees_them(text: str) -> None:
    assert unpickles(text)
    assert not unpickles("yaml.safe_load(f); np.load(p, allow_pickle=False); json.load(f)")
