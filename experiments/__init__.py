"""Tables and figures of the papers, one module each, with the published numbers. `annealed` never imports this."""
