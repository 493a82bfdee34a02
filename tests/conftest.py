"""Fixtures. scikit-learn accepts foreign arrays only if SciPy does, which is decided when SciPy is first imported."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from devices import NAMESPACES, TORCH, mover
from sklearn import config_context


@pytest.fixture(params=NAMESPACES)
def move(request):
    return mover(request.param)


@pytest.fixture(params=TORCH)
def move_torch(request):
    return mover(request.param)


@pytest.fixture
def dispatch():
    """For files whose tests are all about arrays of other libraries."""
    with config_context(array_api_dispatch=True):
        yield
