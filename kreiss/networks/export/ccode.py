"""A recurrent network as one C99 file: weights as constant arrays, a state, `init` and `step`.

The file needs nothing but `expf` and `tanhf`, allocates nothing, and runs one sequence a step at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import InputError
from kreiss.networks.export.ccells import Cell, cells_of
from kreiss.networks.recurrent import RecurrentNetwork
from kreiss.networks.scanned import Scanned
from kreiss.version import __version__

PER_LINE = 8  # numbers of an array
METADATA = "%METADATA%"  # put in last: it may contain any character

HELPERS = {
    "start": """\
static void @_start(float *y, const float *from, int n) {
    for (int i = 0; i < n; ++i) y[i] = from ? from[i] : 0.0f;
}
""",
    "add_product": """\
static void @_add_product(float *restrict y, const float *restrict w, const float *restrict x, int rows, int columns) {
    for (int j = 0; j < columns; ++j)
        for (int i = 0; i < rows; ++i) y[i] += w[j * rows + i] * x[j];
}
""",
    "add_column": """\
static void @_add_column(float *y, const float *w, int column, int rows) {
    for (int i = 0; i < rows; ++i) y[i] += w[column * rows + i];
}
""",
    "dot": """\
static float @_dot(const float *x, const float *y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i] * y[i];
    return sum;
}
""",
    "sigmoid": """\
static float @_sigmoid(float z) {
    return 1.0f / (1.0f + expf(-z));
}
""",
    "modrelu": """\
static float @_modrelu(float z, float threshold) {
    const float size = (z < 0.0f ? -z : z) + threshold;
    return size <= 0.0f || z == 0.0f ? 0.0f : z < 0.0f ? -size : size;
}
""",
    "hash": """\
static float @_hash(uint32_t step) {
    uint32_t x = step * 0x9E3779B1u;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x046CA68Bu;
    return (float)((x ^ (x >> 16)) >> 8) * 5.9604644775390625e-8f;
}
""",
}

FILE = """\
/* @: {about}, written by kreiss {version}.

   @_state state;
   @_init(&state);  before the first step
   @_step(&state, {argument}, output);  {inputs} in, {outputs} numbers out

   C99: compile it with -lm, or include it. For the declarations alone, as in a header, define {guard}_DECLARATIONS
   before including it.%METADATA% */

#ifndef {guard}_DECLARED
#define {guard}_DECLARED

#include <stdint.h>

{structs}
void @_init(@_state *state);
void @_step(@_state *state, {parameter}, float *output);

#endif

#ifndef {guard}_DECLARATIONS

{math}{arrays}

{helpers}
{steps}
void @_init(@_state *state) {{
    static const @_state zero;
    *state = zero;
}}

void @_step(@_state *state, {parameter}, float *output) {{
{body}}}

#endif
"""


@dataclass(frozen=True)
class Source:
    """The text of a C file.

    Attributes:
        name: prefix of its functions.
        text: the file.
        array_bytes: size of all weights.
        symbols: whether a step takes an integer.
        inputs, outputs: numbers that a step takes and returns.
    """

    name: str
    text: str
    array_bytes: int
    symbols: bool
    inputs: int
    outputs: int


def source(model: nn.Module, name: str, symbols: bool, metadata: dict[str, str]) -> Source:
    """The C file of a frozen layer or a recurrent network around one; an error for others.

    Args:
        model: without free parameters, as `tracing.plain` makes it.
        name: prefix of all names in the file.
        symbols: whether a bare layer takes symbols.
        metadata: further lines of the comment at the top.
    """
    network = model if isinstance(model, RecurrentNetwork) else None
    layer: Any = model if network is None else network.layer
    layer = layer.layer if isinstance(layer, Scanned) else layer
    count = network.symbols if network is not None else int(layer.input_size) if symbols else 0
    embedding = None if network is None else network.embedding
    cells = _cells(network, layer, bool(count) and embedding is None)
    arrays = {f"{name}_l{k}_{key}": value for k, cell in enumerate(cells) for key, value in cell.arrays.items()}
    if embedding is not None:
        arrays[f"{name}_embedding"] = embedding.weight
    if network is not None:
        arrays |= {f"{name}_readout": network.readout.weight.mT, f"{name}_offset": network.readout.bias}
    inputs, outputs = count or int(layer.input_size), cells[-1].n if network is None else network.output_size
    words = {
        "about": f"{type(layer).__name__} with {' and '.join(str(cell.n) for cell in cells)} units",
        "version": __version__,
        "guard": name.upper(),
        "argument": "symbol" if count else "input",
        "inputs": f"a symbol below {count}" if count else f"{inputs} numbers",
        "outputs": str(outputs),
        "parameter": "int input" if count else "const float *input",
        "first": "int x" if count and embedding is None else "const float *x",
    }
    said = "".join(f"\n   {_in_comment(f'{key}: {value}')}" for key, value in metadata.items())
    text = _assembled(name, cells, arrays, _body(cells, network), words).replace(METADATA, said)
    return Source(name, text, 4 * sum(tensor.numel() for tensor in arrays.values()), bool(count), inputs, outputs)


def _body(cells: list[Cell], network: RecurrentNetwork | None) -> str:
    """The lines of a step of the whole model: embedding, each layer, readout."""
    lines, below, top = [], "input", f"state->l{len(cells) - 1}.h"
    if network is not None and network.embedding is not None:
        lines, below = [f"const float *x = @_embedding + input * {network.embedding.embedding_dim};"], "x"
    for k in range(len(cells)):
        lines.append(f"@_l{k}_step(&state->l{k}, {below});")
        below = f"state->l{k}.h"
    if network is None:
        lines.append(f"@_start(output, {top}, {cells[-1].n});")
    else:
        lines.append(f"@_start(output, @_offset, {network.output_size});")
        lines.append(f"@_add_product(output, @_readout, {top}, {network.output_size}, {cells[-1].n});")
    return "".join(f"    {line}\n" for line in lines)


def _cells(network: RecurrentNetwork | None, layer: nn.Module, symbols: bool) -> list[Cell]:
    cells = cells_of(layer, symbols) if network is None or network.front is None else "which encodes images"
    if isinstance(cells, str):
        named = type(layer).__name__ if network is None else f"a network around {type(layer).__name__}"
        raise InputError(
            "`model` must be a layer with a plain, gated or screened step, or a recurrent network around one, to be "
            f"written in C; got {named}, {cells}. Export it to ONNX."
        )
    return cells


def _assembled(name: str, cells: list[Cell], arrays: dict[str, Tensor], body: str, words: dict[str, str]) -> str:
    structs = [f"typedef struct {{ {cell.fields} }} @_l{k}_state;" for k, cell in enumerate(cells)]
    members = " ".join(f"@_l{k}_state l{k};" for k in range(len(cells)))
    steps = [
        f"static void @_l{k}_step(@_l{k}_state *s, {words['first'] if k == 0 else 'const float *x'}) {{\n"
        f"{cell.body.replace('$', f'@_l{k}')}}}\n"
        for k, cell in enumerate(cells)
    ]
    code = "\n".join([*steps, body])
    helpers = "\n".join(text for key, text in HELPERS.items() if f"@_{key}(" in code)
    needs_math = any(function in helpers + code for function in ("expf(", "tanhf("))
    text = FILE.format(
        **words,
        math="#include <math.h>\n\n" if needs_math else "",
        structs="\n".join([*structs, f"typedef struct {{ {members} }} @_state;", ""]),
        arrays="\n".join(_array(key, tensor) for key, tensor in arrays.items()),
        helpers=helpers,
        steps="\n".join(steps),
        body=body,
    )
    return text.replace("@", name)


def _array(name: str, tensor: Tensor) -> str:
    """A constant array; nine digits determine a float."""
    values = tensor.detach().to(torch.float32).flatten()
    if not values.isfinite().all():
        raise InputError(f"weights must be finite to be written in C; got NaN or Inf in {name}. Train the model again.")
    numbers = [f"{value:.9g}" for value in values.tolist()]
    written = [f"{number if '.' in number or 'e' in number else number + '.0'}f" for number in numbers]
    lines = [", ".join(written[at : at + PER_LINE]) for at in range(0, len(written), PER_LINE)]
    return f"static const float {name}[{len(written)}] = {{\n    " + ",\n    ".join(lines) + "\n};"


def _in_comment(text: str) -> str:
    """Without what would end a comment, begin another, or be a trigraph."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def prefix(stem: str) -> str:
    """A C identifier from the name of a file."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return name if name[:1].isalpha() else f"model_{name}"
