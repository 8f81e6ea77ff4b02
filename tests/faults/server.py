"""A process that has torch loaded and forks one child a job: hundreds of real deaths a minute.

Reads lines of JSON: job, its arguments, where to watch and log, what to strike, when to kill. Answers a line each:
the child's exit code (-9: killed), its result or what it said. 2 is an `EtastarError`, 1 anything else.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

import jobs  # noqa: E402
import mutants  # noqa: E402

from etastar.errors import EtastarError  # noqa: E402


def child(order: dict[str, Any], told: int) -> None:
    """Do the job and end; never returns."""
    code, said = 1, {}
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    layer = ctypes.CDLL(None)
    try:
        if "watch" in order:
            log = order.get("log")
            layer.layer_watch(order["watch"].encode(), log.encode() if log else None)
            if strike := order.get("strike"):
                layer.layer_strike(ctypes.c_long(strike[0]), *strike[1:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = getattr(jobs, order["job"])(**order["arguments"])
        code = 0
    except EtastarError as error:
        code, said = 2, {"error": str(error)}
    except BaseException:
        said = {"error": traceback.format_exc()}
    finally:
        layer.layer_strike(ctypes.c_long(-1), 0, 0, 0)
        said["calls"] = layer.layer_count()
        os.write(told, json.dumps(said).encode())
        os._exit(code)


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait (and kill where asked), and say how it ended."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            child(order, answer.fileno())
        limit = order.get("kill_after")
        if limit is not None:
            time.sleep(limit)
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer.seek(0)
        text = answer.read()
    said = json.loads(text) if text else {}
    return {"code": code, "seconds": time.monotonic() - began, **said}


def main() -> None:
    """Warm up, then serve until standard input ends; under the mutation gate, with a planted bug."""
    if planted := os.environ.get("ETASTAR_MUTANT"):
        mutants.MUTANTS[planted].plant()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # workers print
    with tempfile.TemporaryDirectory() as folder:
        jobs.one_stack(f"{folder}/warm")
        jobs.sweep(f"{folder}/sweep")
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(carry_out(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
