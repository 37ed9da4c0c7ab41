"""From a CSV file to a stream: train, predict, export, and run step by step without kreiss.

    python docs/journeys/csv_to_stream.py

A table of recordings becomes a network; `predict` answers new rows in the units of the table; the ONNX file answers the
same rows one at a time, with its state fed back, and its answers are those of `predict`.
"""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import kreiss
from kreiss.tasks import Sequence


def write_table(path: Path) -> None:
    """Sixty recordings of a noisy sine: time, which recording, a sensor in its own units, what it should have shown."""
    source = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time", "recording", "sensor", "clean"])
        for recording in range(60):
            clean = np.sin(0.2 * np.arange(50) + source.uniform(0, 6.28))
            for step, value in enumerate(clean):
                rows.writerow([0.1 * step, recording, 20 + 5 * (value + source.normal(scale=0.5)), value])


class OnnxStream:
    """The exported network, one row at a time; it needs onnxruntime and NumPy alone."""

    def __init__(self, path: Path) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        said = self.session.get_modelmeta().custom_metadata_map  # how the inputs of the training were prepared
        self.mean, self.scale = (np.array(json.loads(said[f"kreiss.{name}"])) for name in ("mean", "scale"))
        cells, _, hidden = self.session.get_inputs()[1].shape
        self.state = np.zeros((cells, 1, hidden), np.float32)

    def step(self, row: list[float]) -> np.ndarray:
        """The answer to one row of raw numbers."""
        scaled = ((np.array(row) - self.mean) / self.scale).astype(np.float32)
        output, self.state = self.session.run(None, {"input": scaled[None, None], "state": self.state})
        return output[0, 0]


def main(folder: Path) -> float:
    """The journey; returns the largest difference between `predict` and the stream."""
    table = folder / "sensor.csv"
    write_table(table)

    task = Sequence(table, group="recording", targets="clean")  # the column `time` is left out by its name
    run = kreiss.fit("exprnn", task, hidden=16, steps=200, lr=1e-2, out=folder / "run", show="quiet")
    print(f"test loss {run.metrics['loss']:.4f}; without memory {task.baseline()['loss']:.4f}")
    assert run.metrics["loss"] < task.baseline()["loss"]

    network = kreiss.load(folder / "run")  # with names, means and scales of the columns
    new = {"sensor": [20 + 5 * np.sin(0.2 * step) for step in range(40)]}
    answers = network.predict(new)
    print("predicted:", [row["clean"] for row in answers.rows()][:3], "…")

    kreiss.export(network, folder / "model.onnx")  # its state goes in and out
    stream = OnnxStream(folder / "model.onnx")
    streamed = np.stack([stream.step([value]) for value in new["sensor"]])
    return float(np.abs(streamed - answers.numbers).max())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(f"largest difference between predict and the ONNX stream: {main(Path(place)):.1e}")
