"""What short trainings make of Θ: copying against characters, and permuted pixels in between.

    python benchmarks/learned_structure.py

Trains the networks of `kreiss figure 001/fig3 --train` and `000/fig5 --train`, writes the figures to docs/figures, the
numbers to results/learned_structure.json and the table of docs/analysis.md to docs/structure_measured.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kreiss.analysis import learned_structure
from kreiss.commands.figures import SHORT, said, trained
from kreiss.report.figures import figure
from kreiss.report.style import save

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("copy", "psmnist", "characters")


def measured(role: str) -> tuple[Any, dict[str, Any]]:
    """One short run: its network, and what is to be said about it."""
    run = trained(role)
    found = next(iter(learned_structure(run.model).values()))
    return run.model, {
        "settings": {"model": SHORT[role][0], "task": SHORT[role][1], **SHORT[role][2]},
        "test": run.metrics,
        "normal_energy": found.normal_energy,
        "mean_modulus": float(found.moduli.mean()),
        "mean_triangle": found.triangle,
        "mean_delay_line": found.delay_line,
        "angle_distance": found.angle_distance,
        "chance": float(1.36 / np.sqrt(len(found.angles))),
        "profile": found.profile.tolist(),
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The table of the docs."""
    head = (
        "| task | units, updates | test loss | normal energy | mean γ | mean size of T | delay line | angles off even |"
    )
    lines = [head, "|---" * 8 + "|"]
    for row in rows.values():
        settings = row["settings"]
        lines.append(
            f"| {settings['task']} | {settings['hidden']}, {settings['steps']} | {row['test']['loss']:.4f} "
            f"| {100 * row['normal_energy']:.2f} % | {row['mean_modulus']:.4f} | {row['mean_triangle']:.2e} "
            f"| {row['mean_delay_line']:.2e} | {row['angle_distance']:.3f} (chance {row['chance']:.3f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train, draw, write."""
    networks, rows = {}, {}
    for role in ROLES:
        networks[role], rows[role] = measured(role)
        print(role, {key: value for key, value in rows[role].items() if key not in ("profile", "settings")})
    (ROOT / "results" / "learned_structure.json").write_text(json.dumps(rows, indent=1) + "\n")
    (ROOT / "docs" / "structure_measured.md").write_text(table(rows))
    pictures = ROOT / "docs" / "figures"
    pictures.mkdir(exist_ok=True)
    note = "; ".join(said(role) for role in ("copy", "characters"))
    made = figure("001/fig3", note=note, copy=networks["copy"], characters=networks["characters"])
    save(made, pictures / "001-fig3")
    save(figure("000/fig5", note=said("psmnist"), psmnist=networks["psmnist"]), pictures / "000-fig5")


if __name__ == "__main__":
    main()
