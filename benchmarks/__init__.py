"""Benchmarks of the library and its peers (`python dev.py bench`). They import the library, never the reverse."""
