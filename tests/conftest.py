"""scikit-learn lets arrays of other libraries in only where SciPy does, which is asked when SciPy is first imported."""

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
    """For files of which all tests are about arrays of other libraries."""
    with config_context(array_api_dispatch=True):
        yield
