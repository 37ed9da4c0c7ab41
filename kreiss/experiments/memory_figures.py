"""Figures of the thesis' chapter on memory that are computed from one or a few networks."""

from __future__ import annotations

# name → place in the thesis, title, command
COMPUTED = {
    "thesis/fig4.1": (
        "ch. 4, Fig. 1",
        "Attention of MemRNN on copy and denoise",
        "kreiss figure thesis/fig4.1 --train",
    ),
    "thesis/fig4.2": ("ch. 4, Fig. 2", "Gradients, memory and their trade-off", "kreiss figure thesis/fig4.2 --train"),
    "thesis/figB.1": (
        "App. B, Fig. 1",
        "Gradients of RelLSTM for several ρ and ν",
        "kreiss figure thesis/figB.1 --train",
    ),
    "thesis/figB.5": ("App. B, Fig. 5", "Attention of MemRNN on characters", "kreiss figure thesis/figB.5 --train"),
    "thesis/figB.7": ("App. B, Fig. 7", "Attention of MemRNN on digits", "kreiss figure thesis/figB.7 --train"),
    "thesis/figB.8": ("App. B, Fig. 8", "Short-term attention on copy", "kreiss figure thesis/figB.8 --train"),
    "thesis/figB.9": ("App. B, Fig. 9", "Short-term attention on denoise", "kreiss figure thesis/figB.9 --train"),
}
