"""`python -m etastar.train SPEC.yaml --out STUDY`: training on a bare machine.

Needs torch, numpy, pyarrow, pydantic, yaml and safetensors alone; `etastar train` is the same with a
progress display.
"""

from __future__ import annotations

import argparse
import sys

from etastar.errors import EtastarError


def main(arguments: list[str] | None = None) -> int:
    """Train a spec with plain progress lines; 0 finished, 2 a bad input, 3 time was up first."""
    parser = argparse.ArgumentParser(prog="python -m etastar.train", description="Train a specification.")
    parser.add_argument("spec", help="a training specification in YAML")
    parser.add_argument("--out", required=True, help="the study's folder")
    parser.add_argument("--corpus", help="a corpus folder, in place of the spec's")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="save and stop after so long")
    given = parser.parse_args(arguments)
    try:
        from etastar.train.loop import train
        from etastar.train.spec_file import load_spec

        spec = load_spec(given.spec)
        if given.corpus:
            spec = spec.model_copy(update={"data": spec.data.model_copy(update={"corpus": given.corpus})})
        return 0 if train(spec, given.out, stop_after=given.stop_after).finished else 3
    except EtastarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
