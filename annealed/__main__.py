"""Entry point of `python -m annealed` and of the command `annealed`."""

import sys


def main() -> None:
    """Run the command line, or explain how to install its dependencies."""
    try:
        from annealed.app.cli import app
    except ImportError as error:
        sys.exit(
            f"The command line needs optional dependencies that could not be imported ({error}). "
            'Install them with: pip install "annealed[cli]"'
        )
    except KeyboardInterrupt:
        sys.exit(130)  # interrupted during the imports
    app()


if __name__ == "__main__":
    main()
