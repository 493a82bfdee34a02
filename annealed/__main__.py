"""`python -m annealed` and the command `annealed`."""

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from annealed.cli import app
    except ImportError as error:
        sys.exit(
            f'The command line needs more than the library ({error}). Install it with: pip install "annealed[cli]"'
        )
    except KeyboardInterrupt:
        sys.exit(130)  # before there was anything to say
    app()


if __name__ == "__main__":
    main()
