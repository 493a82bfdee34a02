"""The papers' tables and figures, one file each, beside the published numbers. Nothing of annealed imports this."""
