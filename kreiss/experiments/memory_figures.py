"""Figures of the thesis' chapter on memory (004) that are computed from one or a few networks."""

from __future__ import annotations

# name → place in the thesis, title, command
COMPUTED = {
    "004/fig4.1": ("ch. 4, Fig. 1", "Attention of MemRNN on copy and denoise", "kreiss figure 004/fig4.1 --train"),
    "004/fig4.2": ("ch. 4, Fig. 2", "Gradients, memory and their trade-off", "kreiss figure 004/fig4.2 --train"),
    "004/figB.1": ("App. B, Fig. 1", "Gradients of RelLSTM for several ρ and ν", "kreiss figure 004/figB.1 --train"),
    "004/figB.5": ("App. B, Fig. 5", "Attention of MemRNN on characters", "kreiss figure 004/figB.5 --train"),
    "004/figB.7": ("App. B, Fig. 7", "Attention of MemRNN on digits", "kreiss figure 004/figB.7 --train"),
    "004/figB.8": ("App. B, Fig. 8", "Short-term attention on copy", "kreiss figure 004/figB.8 --train"),
    "004/figB.9": ("App. B, Fig. 9", "Short-term attention on denoise", "kreiss figure 004/figB.9 --train"),
}
