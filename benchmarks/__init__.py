"""The library's speed beside its peers: `python dev.py bench`. Imports the library; never the reverse."""
