"""Can a path, a link or a name in a file make anything outside the study be read or written?"""

from __future__ import annotations

import http.client
import os
import random
import socket
import sys
import threading
import warnings
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from counts import SEED, Table, counted

from etastar.errors import EtastarError
from etastar.importers.sources import read_source
from etastar.report.serve import Live, make_server
from etastar.store import read_runs, read_trajectories, write_runs
from etastar.store.merge import merge_studies
from reported import small_section

SECRET = "TOP-SECRET-8f2c"
UPS = [
    "..",
    "%2e%2e",
    "%252e%252e",
    "..%2f",
    "%2e%2e%2f",
    "..%5c",
    "..\\",
    "%c0%ae%c0%ae",
    "....//",
    "..;",
    ".%00.",
    "%00",
    "．．",
]
TARGETS = [
    "etc/passwd",
    "proc/self/environ",
    "secret.txt",
    "plan.yaml",
    "data.json",
    "runs/part.parquet",
    "",
    "~root/.ssh/id",
]


def traversals(count: int, rng: random.Random) -> list[str]:
    """Paths that climb: plain, encoded once and twice, with NUL, backslashes, mixed."""
    found = []
    while len(found) < count:
        up = "/".join(rng.choice(UPS) for _ in range(rng.randint(1, 9)))
        lead = rng.choice(["/", "//", "/./", "/data.json/", "/status.json/", "/%2f", "/file:///", "/?", "/;", "/\\"])
        path = f"{lead}{up}/{rng.choice(TARGETS)}" + rng.choice(["", "", "%00", "%00.json", "?x=/etc/passwd", "#/"])
        found.append(rng.choice([path, quote(path, safe="/%"), quote(path, safe="/")]))
    return found


def _ask(port: int, path: str) -> tuple[int, bytes]:
    """A request line as it stands: no client library tidies it up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        line = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        connection.sendall(line.encode("utf-8", errors="surrogateescape"))
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.read()


def test_no_path_reaches_a_file_through_the_server(tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count = counted("paths", full=1000, quick=60, is_full=full)
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "served").mkdir()
    monkeypatch.chdir(tmp_path / "served")
    section = small_section()
    live = Live(stamp=lambda: 0, sections=lambda: [section], progress=lambda: None, every=60)
    server = make_server("127.0.0.1", 0)
    server.live = live
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    known = {live.snapshot.page, live.snapshot.data, live.status()}
    opened: list[str] = []
    hook = _Watch(opened)
    try:
        with Table(9, "Paths against --serve", goal="1,000 traversal paths: nothing is read", is_full=full) as table:
            seen: dict[int, int] = {}
            hook.on = True
            for path in traversals(count, random.Random(SEED)):
                status, body = _ask(server.server_address[1], path.replace(" ", "%20"))
                seen[status] = seen.get(status, 0) + 1
                assert SECRET.encode() not in body
                assert b"root:x:0" not in body
                assert status != 200 or body in known, path
            hook.on = False
            table.add(
                paths=count, **{f"answered {status}": n for status, n in sorted(seen.items())}, files_opened=len(opened)
            )
            assert opened == []
    finally:
        hook.on = False
        server.shutdown()
        server.server_close()
        live.close()


class _Watch:
    """Every file that this process opens while it is on (an audit hook stays for good, so it is switched)."""

    def __init__(self, into: list[str]) -> None:
        self.on = False

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if self.on and event == "open" and isinstance(arguments[0], (str, bytes)):
                into.append(os.fsdecode(arguments[0]))

        sys.addaudithook(hook)


def _outside(folder: Path) -> Path:
    """A study, a table and a file outside, all of which hold the secret."""
    row = {"params": 1e6, "tokens": 1e7, "lr": 0.1, "loss": 1.0, "run": SECRET}
    write_runs(folder / "other", pa.Table.from_pylist([row]), "part")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.csv").write_text(f"params,tokens,lr,loss,run\n1e6,1e7,0.1,1.0,{SECRET}\n")
    return folder


def _study(folder: Path, run: str) -> Path:
    row = {"params": 1e6, "tokens": 1e7, "lr": 0.1, "loss": 1.0, "run": run}
    write_runs(folder, pa.Table.from_pylist([row]), f"part-{run}")
    return folder


PLACES = ["runs/evil.parquet", "trajectories/evil.parquet", "specs/evil.yaml", "journal/evil.jsonl", "logs/evil.log",
          "decisions/evil.jsonl", "plans/evil.yaml", "plan.yaml"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["file", "folder", "relative"])
def test_a_link_out_of_a_study_is_not_followed(tmp_path: Path, place: str, how: str) -> None:
    outside = _outside(tmp_path / "outside")
    one, two = _study(tmp_path / "a", "x"), _study(tmp_path / "b", "y")
    goal = outside / "other" / "runs" / "part.parquet" if place.endswith("parquet") else outside / "secret.txt"
    link = one / place
    if how == "folder" and "/" in place:
        if link.parent.exists():
            pytest.skip("the folder is the study's own")
        link.parent.parent.mkdir(parents=True, exist_ok=True)
        (goal.parent / link.name).write_bytes(goal.read_bytes())
        link.parent.symlink_to(goal.parent)
    else:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(goal if how == "file" else os.path.relpath(goal, link.parent))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert SECRET not in str(read_runs(one).to_pylist()) + str(read_trajectories(one).to_pylist())
            merged = merge_studies([one, two], tmp_path / "merged")
        except EtastarError as error:
            assert SECRET not in str(error)
            return
    for path in merged.study.rglob("*"):
        assert not path.is_symlink()
        assert SECRET.encode() not in (path.read_bytes() if path.is_file() else b"")


@pytest.mark.parametrize(
    "name", ["metrics.csv", "runs.csv", "trainer_state.json", "runs.parquet", "data.jsonl", "x.db"]
)
def test_a_link_out_of_a_folder_is_not_imported(tmp_path: Path, name: str) -> None:
    outside = _outside(tmp_path / "outside")
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / name).symlink_to(outside / ("other/runs/part.parquet" if name.endswith("parquet") else "secret.csv"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read_source(folder)
        except EtastarError as error:
            assert SECRET not in str(error)
            return
    assert SECRET not in str(found.table.to_pylist())


def test_a_link_inside_the_study_is_fine(tmp_path: Path) -> None:
    study = _study(tmp_path / "a", "x")
    real = study / "kept.parquet"
    (study / "runs" / "part-x.parquet").rename(real)
    (study / "runs" / "part-x.parquet").symlink_to(real)
    (tmp_path / "link").symlink_to(study)
    assert read_runs(study)["run"].to_pylist() == ["x"]
    assert read_runs(tmp_path / "link")["run"].to_pylist() == ["x"]


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..", "x\0y", "%2e%2e%2fevil"])
def test_a_task_cannot_name_a_specification_elsewhere(tmp_path: Path, name: str) -> None:
    from etastar.launch.study import read_record

    study = _study(tmp_path / "a", "x")
    (tmp_path / "evil.yaml").write_text(f"id: {SECRET}\n")
    with pytest.raises(EtastarError) as raised:
        read_record(study, name)
    assert SECRET not in str(raised.value)
