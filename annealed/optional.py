"""Optional dependencies: imported where they are used, with a uniform error message if they are missing."""

from importlib import import_module
from types import ModuleType


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional library, or raise an error that explains how to install it.

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
        If the module cannot be imported; the message contains the pip command that installs it.

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
