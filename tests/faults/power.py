"""What may be on disk after a power cut? A model of a file system, fed with the layer's log.

The worst that POSIX allows: a write is safe after an fsync of its file, a name after an fsync of its folder, and of
everything else any part may be there, in any order; a write may be torn, and a gap before a later one reads as
zeros. A rename is one step: both names change or none does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Node:
    """A file (or a folder, then `names` counts)."""

    folder: bool = False
    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)  # as processes see them
    safe_names: dict[str, Node] = field(default_factory=dict)
    changes: list[list[tuple[str, Node | None]]] = field(default_factory=list)  # not yet synced


@dataclass(frozen=True)
class Call:
    """One line of the log."""

    op: str
    fd: int
    one: str
    two: str
    data: bytes
    at: int


def read_log(path: Path) -> Iterator[Call]:
    """The calls of a log, in order."""
    with path.open("rb") as file:
        while head := file.readline():
            op, fd, one, two, size, at = head.decode(errors="surrogateescape").rstrip("\n").split("\t")
            yield Call(op, int(fd), one, two, file.read(int(size)), int(at))


class Disk:
    """The state of one folder, call by call."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.top = Node(folder=True)
        self.open: dict[int, Node] = {}
        self.acknowledged: list[dict[str, Any]] = []

    def apply(self, call: Call) -> None:
        """Do what a call did."""
        if call.op == "mark":
            self.acknowledged.append(json.loads(call.one))
        elif call.op == "mkdir":
            self._set(call.one, Node(folder=True))
        elif call.op in ("create", "cut", "open"):
            if call.op == "create":
                self._set(call.one, Node())
            self.open[call.fd] = self._find(call.one)
        elif call.op == "write":
            self.open[call.fd].pending.append((call.at, call.data))
        elif call.op == "sync":
            self._sync(self.open[call.fd])
        elif call.op == "link":
            self._set(call.two, self._find(call.one))
        elif call.op == "unlink":
            self._set(call.one, None)
        elif call.op == "rename":
            self._rename(call.one, call.two)

    def _parent(self, path: str) -> tuple[Node, str]:
        relative = path[len(self.root) :].strip("/")
        *folders, name = relative.split("/")
        node = self.top
        for one in folders:
            node = node.names[one]
        return node, name

    def _find(self, path: str) -> Node:
        if path.rstrip("/") == self.root:
            return self.top
        parent, name = self._parent(path)
        return parent.names[name]

    def _set(self, path: str, node: Node | None) -> None:
        if path.rstrip("/") == self.root:  # the watched folder itself: its own name is not our matter
            return
        parent, name = self._parent(path)
        self._change(parent, [(name, node)])

    def _rename(self, one: str, two: str) -> None:
        (parent, name), (goal, new) = self._parent(one), self._parent(two)
        node = parent.names[name]
        if parent is goal:
            self._change(parent, [(name, None), (new, node)])
        else:
            self._change(parent, [(name, None)])
            self._change(goal, [(new, node)])

    @staticmethod
    def _change(parent: Node, step: list[tuple[str, Node | None]]) -> None:
        _take(parent.names, step)
        parent.changes.append(step)

    @staticmethod
    def _sync(node: Node) -> None:
        if node.folder:
            node.safe_names, node.changes = dict(node.names), []
        else:
            node.safe, node.pending = _written(node.safe, node.pending), []

    def unsafe(self) -> int:
        """How many writes and changes of names a power cut could take now."""
        seen: set[int] = set()
        return sum(len(node.pending) + len(node.changes) for node in _all(self.top, seen))

    def cut(self, into: Path, rng: random.Random) -> None:
        """Make a folder as a power cut at this moment might leave it."""
        into.mkdir(parents=True)
        contents: dict[int, bytes] = {}
        mood = rng.choice(("lose all", "any", "any", "any", "names only", "bytes only"))
        _materialise(self.top, into, rng, mood, contents)


def _take(names: dict[str, Node], step: list[tuple[str, Node | None]]) -> None:
    for name, node in step:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _written(content: bytearray, writes: list[tuple[int, bytes]]) -> bytearray:
    result = bytearray(content)
    for at, data in writes:
        if len(result) < at:
            result.extend(bytes(at - len(result)))
        result[at : at + len(data)] = data
    return result


def _all(node: Node, seen: set[int]) -> Iterator[Node]:
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for child in node.names.values():
        yield from _all(child, seen)


def _survivors(items: list[Any], rng: random.Random, mood: str, kept: str) -> list[Any]:
    """Which of the unsynced made it: none, all, a beginning, or any (so that a later one overtakes an earlier)."""
    if mood == "lose all" or not items:
        return []
    if mood == kept:
        return items
    if mood in ("names only", "bytes only"):
        return []
    how = rng.choice(("none", "all", "prefix", "some"))
    if how == "prefix":
        return items[: rng.randrange(len(items) + 1)]
    return {"none": [], "all": items}.get(how) if how != "some" else [x for x in items if rng.random() < 0.5]  # type: ignore[return-value]


def _materialise(node: Node, into: Path, rng: random.Random, mood: str, contents: dict[int, bytes]) -> None:
    names = dict(node.safe_names)
    for step in _survivors(node.changes, rng, mood, "names only"):
        _take(names, step)
    for name, child in names.items():
        path = into / name
        if child.folder:
            path.mkdir()
            _materialise(child, path, rng, mood, contents)
            continue
        if id(child) not in contents:  # two names of one file show the same bytes
            writes = _survivors(child.pending, rng, mood, "bytes only")
            writes = [(at, data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data) for at, data in writes]
            contents[id(child)] = bytes(_written(child.safe, writes))
        path.write_bytes(contents[id(child)])
