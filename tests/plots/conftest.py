import pytest


@pytest.fixture(autouse=True)
def _close_figures():
    """What a test has drawn; tests that find no matplotlib are skipped by themselves."""
    yield
    pytest.importorskip("matplotlib.pyplot").close("all")
