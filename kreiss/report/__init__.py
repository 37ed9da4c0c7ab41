"""Plots, figures of the papers and self-contained HTML pages. Never trains."""
