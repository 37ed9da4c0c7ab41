"""Weights as 8-bit integers, by ONNX Runtime's dynamic quantisation, and what that does to the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from kreiss.errors import in_bytes
from kreiss.networks.export.checking import in_steps
from kreiss.networks.export.formats import opened
from kreiss.networks.export.states import initial
from kreiss.networks.export.tracing import Flat

OWN = {"onnx.quant.pre_process": "onnxruntime.quant"}  # or the quantiser advises to optimise the graph, as torch did
LEFT_BEHIND = {"onnx.infer", *OWN}  # entries of the metadata that the quantiser writes for itself


@dataclass(frozen=True)
class Int8:
    """What quantisation did.

    Attributes:
        largest: the largest difference between outputs of the two files.
        relative: root mean square of that difference, divided by that of the outputs.
        bytes, float_bytes: sizes of the files with integers and with floats.
        inputs: what they were given, in words.
    """

    largest: float
    relative: float
    bytes: int
    float_bytes: int
    inputs: str

    def __str__(self) -> str:
        return (
            f"int8: {in_bytes(self.bytes)} instead of {in_bytes(self.float_bytes)}; on {self.inputs} outputs differ "
            f"from float by at most {self.largest:.2g}, by {self.relative:.2%} in root mean square"
        )


def quantised(path: Path, flat: Flat, inputs: str, x: Tensor) -> tuple[Path, Int8]:
    """A file beside the ONNX file `path` with integers for weights, compared with it on the inputs x."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model, integers = onnx.load(path), path.with_stem(f"{path.stem}-int8")
    del model.graph.value_info[:]  # shapes of weights, which the quantiser transposes and then finds in conflict
    onnx.helper.set_model_props(model, {**_metadata(model), **OWN})
    # also weights inside of a Scan; one scale for a matrix: those by column fail for vectors
    quantize_dynamic(model, integers, weight_type=QuantType.QInt8, extra_options={"EnableSubgraph": True})
    model = onnx.load(integers)
    onnx.helper.set_model_props(model, {k: v for k, v in _metadata(model).items() if k not in LEFT_BEHIND})
    onnx.save(model, integers)
    return integers, _compared(integers, path, flat, x, inputs)


def _metadata(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def _compared(integers: Path, floats: Path, flat: Flat, x: Tensor, inputs: str) -> Int8:
    state = initial(flat.model, x.shape[1 - flat.time]) if flat.form else []
    runs = [opened(path, "onnx") for path in (integers, floats)]
    found, expected = (in_steps(run, flat, x, state)[0] if flat.step else run(x, *state)[0] for run in runs)
    apart = (found - expected).double()
    relative = float(apart.norm() / expected.double().norm().clamp(min=1e-30))
    return Int8(float(apart.abs().max()), relative, integers.stat().st_size, floats.stat().st_size, inputs)
