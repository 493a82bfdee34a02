"""Array libraries used by the tests: torch and array-api-strict, and a GPU for tests marked `gpu`."""

import numpy as np
import pytest
from small_problems import gaussian

NAMESPACES = ["torch", "strict", pytest.param("cuda", marks=pytest.mark.gpu)]
TORCH = ["torch", pytest.param("cuda", marks=pytest.mark.gpu)]


def mover(name):
    """A function that moves NumPy arrays to a library, and off the host if possible."""
    if name == "strict":
        strict = pytest.importorskip("array_api_strict")
        return lambda array: strict.asarray(np.array(array), device=strict.Device("device1"))
    torch = pytest.importorskip("torch")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device = "cuda" if name == "cuda" else "cpu"
    return lambda array: torch.asarray(np.array(array), device=device)


def table(n_samples=150):
    drawn = gaussian(n_samples=n_samples)
    return np.asarray(drawn.X), np.asarray(drawn.y)
