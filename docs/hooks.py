"""What of the site is made when it is built? The page of the command line, from the command line itself.

`mkdocs` calls the functions named on_…; nothing here is imported by the package.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ITEM = re.compile(r"(- |\d+\. )")
COMMANDS_HERE = "<!-- the verbs are written here when the site is built -->"


def on_config(config: Any) -> Any:
    """Leave out of the navigation what has not been written yet."""
    config["nav"] = _existing(config["nav"], Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the verbs and their options into reference/cli.md; in every page, set lists apart."""
    if page.file.src_uri == "reference/cli.md":
        markdown = markdown.replace(COMMANDS_HERE, command_reference())
    return lists_apart(markdown)


def lists_apart(markdown: str) -> str:
    """A blank line between a paragraph and the list below it: GitHub needs none, this Markdown does."""
    written: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        before = written[-1] if written else ""
        if not fenced and _ITEM.match(line) and before.strip() and not before.startswith((" ", "#", "```")):
            written += [""] if not _ITEM.match(before) else []
        written.append(line)
    return "\n".join(written)


def command_reference() -> str:
    """Every verb of `etastar` in Markdown: its sentence, its arguments and its options."""
    from typer.main import get_command

    from etastar.cli.app import app

    root: Any = get_command(app)
    return "\n\n".join(_verb(name, command) for name, command in _leaves("etastar", root))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for verb, inner in below.items():
        yield from _leaves(f"{name} {verb}", inner)


def _verb(name: str, command: Any) -> str:
    kinds = _kinds(command)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    usage = " ".join([name, *(_placeholder(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## {name}", f"```text\n{usage}\n```", *_paragraphs(command.help or "")]
    if arguments:
        parts.append(_table("argument", [(_code(_word(p)), _said(p)) for p in arguments]))
    if options:
        parts.append(_table("option", [(_option(p, kinds[p.name]), _said(p)) for p in options]))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> list[str]:
    """The help of a verb; an example becomes a block that can be copied."""
    found = [part.strip() for part in text.split("\n\n")]
    return [
        f"```bash\n{part.removeprefix('Example:').strip()}\n```" if part.startswith("Example:") else part
        for part in found
    ]


def _word(parameter: Any) -> str:
    return (parameter.metavar or parameter.name).upper()


def _placeholder(parameter: Any) -> str:
    word = _word(parameter) + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _option(parameter: Any, kind: Any) -> str:
    names = ", ".join(_code(name) for name in (*parameter.opts, *parameter.secondary_opts))
    return names if kind is bool else f"{names} {_code(_kind(kind))}"


def _kinds(command: Any) -> dict[str, Any]:
    """The type of every parameter as its function declares it, None left out."""
    hints = typing.get_type_hints(inspect.unwrap(command.callback))
    return {name: next((t for t in typing.get_args(hint) if t is not type(None)), hint) for name, hint in hints.items()}


def _kind(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(member.value) for member in kind)
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _said(parameter: Any) -> str:
    text = _cell(" ".join((parameter.help or "").split()))
    default = parameter.default
    if getattr(parameter, "multiple", False):
        text += " Repeatable." if "epeatable" not in text else ""
    if parameter.required:
        return f"{text} **Required.**" if parameter.param_type_name == "option" else text
    if default is None or default == () or isinstance(default, bool) or callable(default):
        return text
    shown = str(getattr(default, "value", default))
    return f"{text} Default: {_code(shown)}." if shown else text


def _table(head: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {left} | {right} |" for left, right in rows]
    return "\n".join([f"| {head} | |", "|---|---|", *lines])


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    """Text in a cell: a bar would end it, and a star or an angle bracket would be markup."""
    return (
        text.replace("|", "\\|") if "`" in text else text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    )


def _existing(nav: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        ((title, below),) = entry.items()
        if isinstance(below, list):
            kept.append({title: _existing(below, docs)})
        elif (docs / below).exists():
            kept.append(entry)
    return kept
