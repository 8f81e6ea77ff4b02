"""How fast is the bootstrap against the obvious loop? The paper's grid, through cubics and four laws.

    python bench/bootstrap.py [--replicates 1000]

6 N × 39 D × 10 LRs, both quantities: every redraw is fitted by a cubic in every cell, and the four
log-linear laws are fitted to the minimisers. The loop does the same with numpy.polyfit on the same
redraws (on a share of them, scaled up), in the same process; both must agree.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from etastar.estimate.cells import Block, Quantity, build_groups
from etastar.estimate.polynomial import make_design
from etastar.estimate.weights import coordinate
from etastar.laws.loglinear import Line
from etastar.simulate import Grid, World, simulate


def redraws(blocks: list[Block], replicates: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [
        b.loss
        + 0.001 * rng.standard_normal((replicates, *b.loss.shape))
        + 0.001 * rng.standard_normal((replicates, 1, 10))
        for b in blocks
    ]


def batched(blocks: list[Block], drawn: list[np.ndarray]) -> dict[str, np.ndarray]:
    """etastar's way: one operator a cell, one matrix product for all redraws, laws likewise."""
    out: dict[str, np.ndarray] = {}
    for quantity in Quantity:
        optima = []
        for block, y in zip(blocks, drawn, strict=True):
            design = make_design(coordinate(block, quantity), np.ones(block.loss.shape), 3)
            optima.append(design.minimiser(design.coefficients(y))[0])
        x = np.stack(optima, axis=1)  # (B, N, D)
        d, n = np.log2(blocks[0].tokens), np.log2([b.params for b in blocks])
        along_d = Line.through(d[:, None], np.ones(len(d))).operator
        along_n = Line.through(n[:, None], np.ones(len(n))).operator
        out[f"{quantity}/data"] = x @ along_d.T  # (B, N, 2)
        out[f"{quantity}/model"] = np.swapaxes(x, 1, 2) @ along_n.T  # (B, D, 2)
    return out


def looped(blocks: list[Block], drawn: list[np.ndarray], replicates: int) -> dict[str, np.ndarray]:
    """The obvious way: numpy.polyfit for every cell and every law of every redraw."""
    out: dict[str, list[list[np.ndarray]]] = {}
    d, n = np.log2(blocks[0].tokens), np.log2([b.params for b in blocks])
    for quantity in Quantity:
        for b in range(replicates):
            x = np.empty((len(blocks), len(d)))
            for i, block in enumerate(blocks):
                at = coordinate(block, quantity)
                for j in range(len(d)):
                    c3, c2, c1, _ = np.polyfit(at[j], drawn[i][b, j], 3)
                    x[i, j] = (-2 * c2 + np.sqrt(4 * c2**2 - 12 * c3 * c1)) / (6 * c3)
            out.setdefault(f"{quantity}/data", []).append([np.polyfit(d, x[i], 1)[::-1] for i in range(len(n))])
            out.setdefault(f"{quantity}/model", []).append([np.polyfit(n, x[:, j], 1)[::-1] for j in range(len(d))])
    return {key: np.array(value) for key, value in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--loop", type=int, default=10, help="redraws that the loop does")
    asked = parser.parse_args()
    blocks = list(build_groups(simulate(World(), Grid()))[0].blocks)
    drawn = redraws(blocks, asked.replicates, np.random.default_rng(0))
    batched(blocks, [y[:5] for y in drawn])  # warm up
    ours, theirs = [], []
    for _ in range(5):
        start = time.perf_counter()
        fast = batched(blocks, drawn)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        slow = looped(blocks, drawn, asked.loop)
        theirs.append((time.perf_counter() - start) * asked.replicates / asked.loop)
    worst = max(float(np.nanmax(np.abs(fast[k][: asked.loop] - slow[k]))) for k in fast)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ratio = np.median(theirs) / np.median(ours)
    print(f"cells {sum(b.loss.shape[0] for b in blocks)}, quantities 2, redraws {asked.replicates}, laws 4")
    print(f"loop over numpy.polyfit takes {ratio:.0f}× as long as the batched bootstrap (medians of 5, interleaved)")
    print(f"largest difference in a law's coefficients {worst:.1e}; peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
