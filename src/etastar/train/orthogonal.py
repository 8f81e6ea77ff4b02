"""What is the orthogonal matrix nearest to a momentum matrix, for a whole stack at once?

Newton–Schulz iterations of degree five push every singular value towards 1 (Muon's coefficients: fast,
and settling in 0.7 … 1.2 rather than at 1). Matrices are in the last two dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalized(matrices: Tensor) -> Tensor:
    """U·Vᵀ, roughly, of every matrix U·S·Vᵀ; in bf16 on CUDA, in the matrices' own type elsewhere."""
    *lead, rows, columns = matrices.shape
    x = matrices.reshape(-1, rows, columns)
    x = x.to(torch.bfloat16) if x.is_cuda and x.dtype == torch.float32 else x
    x = x.mT if rows > columns else x
    # The Frobenius norm bounds the largest singular value, so the iteration converges.
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = torch.bmm(x, x.mT)
        x = a * x + torch.bmm(b * gram + c * torch.bmm(gram, gram), x)
    x = x.mT if rows > columns else x
    return x.reshape(*lead, rows, columns).to(matrices.dtype)
