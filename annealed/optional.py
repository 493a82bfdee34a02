"""Libraries that the core does without: imported where they are used, with one text when they are missing."""

from importlib import import_module
from types import ModuleType


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional library, or say how to get it.

    Parameters
    ----------
    module : str
        Dotted name of the module, such as ``"matplotlib.pyplot"``.
    extra : str
        The extra of this package that installs it, such as ``"plot"``.

    Returns
    -------
    module : module
        The imported module itself, also for a dotted name.

    Raises
    ------
    ImportError
        When the module cannot be imported; the text holds the pip line that helps.

    Examples
    --------
    >>> from annealed.optional import require
    >>> require("json", extra="plot").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is needed for this and could not be imported ({error}). "
            f'Install it with: pip install "annealed[{extra}]"'
        ) from error
