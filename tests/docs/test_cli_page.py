"""Does the page of the command line, as the site's hook writes it, hold every verb and every option?"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verbs(command: Any, name: str = "etastar") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for verb, below in command.commands.items():
            yield from verbs(below, f"{name} {verb}")
    else:
        yield name, command


def test_every_verb_and_option_is_there(hooks: ModuleType) -> None:
    from typer.main import get_command

    from etastar.cli.app import app

    page = hooks.on_page_markdown(
        (DOCS / "reference/cli.md").read_text(encoding="utf-8"),
        page=SimpleNamespace(file=SimpleNamespace(src_uri="reference/cli.md")),
    )
    assert hooks.COMMANDS_HERE not in page
    found = list(verbs(get_command(app)))
    assert len(found) > 15
    for name, command in found:
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert (command.help or "").split("\n")[0] in section
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        assert [option for option in options - {"--help"} if f"`{option}`" not in section] == []


def test_other_pages_are_left_alone(hooks: ModuleType) -> None:
    text = (DOCS / "reference/flags.md").read_text(encoding="utf-8")
    assert (
        hooks.on_page_markdown(text, page=SimpleNamespace(file=SimpleNamespace(src_uri="reference/flags.md"))) == text
    )


def test_a_list_below_a_paragraph_is_set_apart(hooks: ModuleType) -> None:
    assert hooks.lists_apart("Said:\n- one\n- two\n  more\n- three") == "Said:\n\n- one\n- two\n  more\n- three"
    untouched = "## Head\n- one\n\ntext\n\n1. two\n2. three\n```bash\necho\n- no item\n```"
    assert hooks.lists_apart(untouched) == untouched


def test_pages_that_do_not_exist_yet_are_left_out(hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("# here", encoding="utf-8")
    config = {
        "docs_dir": str(tmp_path),
        "nav": [{"A": "here.md"}, {"B": "gone.md"}, {"C": [{"D": "gone.md"}, {"E": "here.md"}]}],
    }
    assert hooks.on_config(config)["nav"] == [{"A": "here.md"}, {"C": [{"E": "here.md"}]}]
