"""One step of each kind of layer, in C.

A cell is one layer of a network: its arrays, the fields of its state, and the body of a function that takes the input x
of a step and the state s, and changes s. In its text `@` stands for the prefix of the model and `$` for that of the
layer. Matrices are stored by columns, so that the inner loop of a product has no sum to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from kreiss.layers import Henaff, RecurrentLayer
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.layers.contract.gated import GatedLayer
from kreiss.memory.base import AttentiveLayer
from kreiss.memory.hdetach import HDetach
from kreiss.memory.screening import RULES

# φ of z[i]; the threshold of modReLU is b
PHI = {
    "identity": "z[i]",
    "tanh": "tanhf(z[i])",
    "relu": "z[i] > 0.0f ? z[i] : 0.0f",
    "modrelu": "@_modrelu(z[i], {threshold})",
}


@dataclass(frozen=True)
class Cell:
    """One layer: N numbers of state, arrays by name, fields of the state, body of the step."""

    n: int
    arrays: dict[str, Tensor]
    fields: str
    body: str


def cells_of(layer: nn.Module, symbols: bool) -> list[Cell] | str:
    """The cells of a frozen layer from the bottom; or why there are none, as the end of a sentence.

    Args:
        symbols: whether the lowest cell takes an integer, which stands for a one-hot vector.
    """
    if getattr(layer, "bidirectional", False):
        return "whose backward direction needs the whole sequence"
    make = _maker(layer)
    if isinstance(make, str):
        return make
    return [make(layer, f"l{k}", symbols and k == 0) for k in range(layer.num_layers)]  # type: ignore[arg-type]


def _maker(layer: nn.Module) -> Callable[[Any, str, bool], Cell] | str:
    """What makes the cells of a layer."""
    if isinstance(layer, nn.RNNBase):
        return "which has a projection" if layer.proj_size else _of_torch
    if isinstance(layer, ComplexLayer):
        return "whose states are complex"
    if isinstance(layer, AttentiveLayer):
        if layer.short is None:
            return "whose memory grows"
        return _screened if type(layer.rule) in RULES.values() else "whose screening rule is none of those of kreiss"
    if type(layer) is HDetach:
        return _lstm
    if isinstance(layer, GatedLayer):
        return _gated
    if hasattr(layer, "attention"):
        return "whose memory grows"
    if not isinstance(layer, RecurrentLayer):
        return "which is no recurrent layer"
    same = all(
        getattr(type(layer), name, None) is getattr(RecurrentLayer, name) for name in ("_run_cell", "_arguments")
    )
    return _plain if same or isinstance(layer, Henaff) else "whose step is none of those"


# ---------------------------------------------------------------- parts of a step


def _arrays(given: dict[str, Tensor | None]) -> dict[str, Tensor]:
    """Arrays as they are stored: matrices transposed, those that are missing left out."""
    return {name: tensor.mT if tensor.dim() == 2 else tensor for name, tensor in given.items() if tensor is not None}


def _start(z: str, rows: int, bias: str | None) -> str:
    return f"    @_start({z}, {bias or 0}, {rows});\n"


def _add_input(z: str, u: Tensor, symbols: bool, name: str = "$_u") -> str:
    rows, columns = u.shape
    return (
        f"    @_add_column({z}, {name}, x, {rows});\n"
        if symbols
        else f"    @_add_product({z}, {name}, x, {rows}, {columns});\n"
    )


def _add_state(z: str, v: Tensor, name: str = "$_v", state: str = "s->h") -> str:
    return f"    @_add_product({z}, {name}, {state}, {v.shape[0]}, {v.shape[1]});\n"


def _bias_of(layer: Any, suffix: str) -> Tensor | None:
    bias = layer._bias(suffix)
    return None if bias is None else bias.detach()


def _phi(nonlinearity: str, threshold: str | None) -> str:
    return PHI[nonlinearity].format(threshold=f"{threshold}[i]" if threshold else "0.0f")


def _lstm_gates(n: int) -> str:
    return (
        f"    for (int i = 0; i < {n}; ++i) {{\n"
        f"        const float in = @_sigmoid(z[i]), keep = @_sigmoid(z[{n} + i]), out = @_sigmoid(z[{3 * n} + i]);\n"
        f"        s->c[i] = keep * s->c[i] + in * tanhf(z[{2 * n} + i]);\n"
        f"        s->h[i] = out * tanhf(s->c[i]);\n"
        f"    }}\n"
    )


# ---------------------------------------------------------------- plain and gated cells


def _plain(layer: Any, suffix: str, symbols: bool) -> Cell:
    """h = φ(V h + U x; b); of Henaff's network h = φ(U x; b) + V h."""
    u, v, b = getattr(layer, f"weight_ih_{suffix}"), layer.recurrent_matrix(suffix), _bias_of(layer, suffix)
    return _elman(u, v, b, layer.nonlinearity, symbols, outside=isinstance(layer, Henaff))


def _elman(u: Tensor, v: Tensor, b: Tensor | None, phi: str, symbols: bool, outside: bool = False) -> Cell:
    n, name = len(v), None if b is None else "$_b"
    apply = f"    for (int i = 0; i < {n}; ++i) {{ TARGET[i] = {_phi(phi, name)}; }}\n"
    body = f"    float z[{n}];\n" + _start("z", n, None if phi == "modrelu" else name) + _add_input("z", u, symbols)
    if outside:
        body += (
            apply.replace("TARGET", "z") + _add_state("z", v) + f"    for (int i = 0; i < {n}; ++i) s->h[i] = z[i];\n"
        )
    else:
        body += _add_state("z", v) + apply.replace("TARGET", "s->h")
    return Cell(n, _arrays({"u": u, "v": v, "b": b}), f"float h[{n}];", body)


def _gated(layer: Any, suffix: str, symbols: bool) -> Cell:
    """r, g = σ(W h + S x + d), c = φ(r ⊙ V h + U x; b), h = g ⊙ h + (1 − g) ⊙ c."""
    names = {"u": "weight_ih", "s": "gate_ih", "w": "gate_hh", "d": "gate_bias", "b": "bias"}
    given: dict[str, Any] = {key: getattr(layer, f"{name}_{suffix}", None) for key, name in names.items()}
    given["v"] = layer.recurrent_matrix(suffix)
    n, biased = layer.hidden_size, given["b"] is not None
    modrelu = layer.nonlinearity == "modrelu"
    inner = " + $_b[i]" if biased and not modrelu else ""
    body = (
        f"    float gates[{2 * n}], z[{n}], kept[{n}];\n"
        + _start("gates", 2 * n, "$_d" if given["d"] is not None else None)
        + _add_input("gates", given["s"], symbols, "$_s")
        + _add_state("gates", given["w"], "$_w")
        + _start("kept", n, None)
        + _add_state("kept", given["v"])
        + _start("z", n, None)
        + _add_input("z", given["u"], symbols)
        + f"    for (int i = 0; i < {n}; ++i) {{\n"
        f"        const float keep = @_sigmoid(gates[{n} + i]);\n"
        f"        z[i] += @_sigmoid(gates[i]) * kept[i]{inner};\n"
        f"        const float candidate = {_phi(layer.nonlinearity, '$_b' if biased and modrelu else None)};\n"
        f"        s->h[i] = keep * s->h[i] + (1.0f - keep) * candidate;\n"
        f"    }}\n"
    )
    return Cell(n, _arrays(given), f"float h[{n}];", body)


def _lstm(layer: Any, suffix: str, symbols: bool) -> Cell:
    u, v, b = getattr(layer, f"weight_ih_{suffix}"), layer.recurrent_matrix(suffix), _bias_of(layer, suffix)
    return _lstm_cell(u, v, b, symbols)


def _lstm_cell(u: Tensor, v: Tensor, b: Tensor | None, symbols: bool) -> Cell:
    rows, n = v.shape
    start = f"    float z[{rows}];\n" + _start("z", rows, None if b is None else "$_b")
    body = start + _add_input("z", u, symbols) + _add_state("z", v) + _lstm_gates(n)
    return Cell(n, _arrays({"u": u, "v": v, "b": b}), f"float h[{n}], c[{n}];", body)


def _gru_cell(u: Tensor, v: Tensor, b: Tensor | None, inside: Tensor | None, symbols: bool) -> Cell:
    """As in torch: the bias of V h is inside the gate."""
    rows, n = v.shape
    body = (
        f"    float z[{rows}], kept[{rows}];\n"
        + _start("z", rows, None if b is None else "$_b")
        + _add_input("z", u, symbols)
        + _start("kept", rows, None if inside is None else "$_d")
        + _add_state("kept", v)
        + f"    for (int i = 0; i < {n}; ++i) {{\n"
        f"        const float keep = @_sigmoid(z[{n} + i] + kept[{n} + i]);\n"
        f"        const float reset = @_sigmoid(z[i] + kept[i]);\n"
        f"        s->h[i] = (1.0f - keep) * tanhf(z[{2 * n} + i] + reset * kept[{2 * n} + i]) + keep * s->h[i];\n"
        f"    }}\n"
    )
    return Cell(n, _arrays({"u": u, "v": v, "b": b, "d": inside}), f"float h[{n}];", body)


def _of_torch(layer: Any, suffix: str, symbols: bool) -> Cell:
    """torch's RNN, LSTM and GRU."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    given: list[Any] = [getattr(layer, f"{name}_{suffix}", None) for name in names]
    u, v, b, inside = given
    if layer.mode == "GRU":
        return _gru_cell(u, v, b, inside, symbols)
    both = None if b is None else b + inside
    if layer.mode == "LSTM":
        return _lstm_cell(u, v, both, symbols)
    return _elman(u, v, both, layer.mode.removeprefix("RNN_").lower(), symbols)


# ---------------------------------------------------------------- screened cells

ATTEND = """\
    const int there = s->steps < {short} ? (int)s->steps : {short};
    float query[{n}], mixed[{n}], weight[{slots}] = {{0.0f}}, largest = -3.0e38f, total = 0.0f;
    @_start(query, 0, {n});
    @_add_product(query, $_query, s->query, {n}, {n});
    for (int j = 0; j < {slots}; ++j) {{  /* the score of every stored state, and their softmax */
        if (j < {relevant} ? j >= s->kept : j - {relevant} >= there) continue;
        for (int i = 0; i < {n}; ++i) weight[j] += $_score[i] * tanhf(query[i] + s->keys[j * {n} + i]);
        if (weight[j] > largest) largest = weight[j];
    }}
    for (int j = 0; j < {slots}; ++j) {{
        if (j < {relevant} ? j >= s->kept : j - {relevant} >= there) continue;
        weight[j] = expf(weight[j] - largest);
        total += weight[j];
    }}
    for (int i = 0; i < {n}; ++i) mixed[i] = s->h[i];
    for (int j = 0; j < {slots} && total > 0.0f; ++j) {{
        weight[j] /= total;
        for (int i = 0; i < {n}; ++i) mixed[i] += weight[j] * s->stored[j * {n} + i];
    }}
    if (s->steps > 0) {{ for (int i = 0; i < {n}; ++i) mixed[i] *= {mixing}; }}
    for (int i = 0; i < {n}; ++i) s->query[i] = mixed[i];
"""

SCREEN = """\
    const int at = (int)(s->steps % {short});
    float *const oldest = s->stored + ({relevant} + at) * {n}, *const key = s->keys + ({relevant} + at) * {n};
{reads}    if (s->steps >= {short}) {{  /* the oldest state leaves the short-term memory; it may be kept */
        const float score = {score};
        int place = s->kept;
        if (place < {relevant}) ++s->kept;
        else {{
            place = 0;
            for (int j = 1; j < {relevant}; ++j) if (s->scores[j] < s->scores[place]) place = j;
            if (!(score > s->scores[place])) place = -1;
        }}
        if (place >= 0) {{
            s->scores[place] = score;
            for (int i = 0; i < {n}; ++i) s->stored[place * {n} + i] = oldest[i];
            for (int i = 0; i < {n}; ++i) s->keys[place * {n} + i] = key[i];
        }}
    }}
"""
ONLY_SHORT = """\
    const int at = (int)(s->steps % {short});
    float *const oldest = s->stored + ({relevant} + at) * {n}, *const key = s->keys + ({relevant} + at) * {n};
"""

PUSH = """\
{surprise}    for (int i = 0; i < {n}; ++i) oldest[i] = s->h[i];
    @_start(key, 0, {n});
    @_add_product(key, $_key, s->h, {n}, {n});
    ++s->steps;
"""

READS = "    for (int j = 0; j < {short}; ++j) s->reads[j] += weight[{relevant} + j];\n"
SURPRISE = """\
    s->surprise[at] = 0.0f;
    for (int i = 0; i < {n}; ++i) {{
        const float apart = s->h[i] - (s->steps == 0 ? mixed[i] : mixed[i] * {half});
        s->surprise[at] += apart * apart;
    }}
"""

SCORES = {  # rule → its score of the state that leaves
    "relevance": "s->reads[at]",
    "oldest": "-(float)(s->steps - {short})",
    "random": "@_hash((uint32_t)(s->steps - {short}))",
    "surprise": "s->surprise[at]",
    "learned": "@_dot(oldest, $_gate, {n})",
}


def _screened(layer: AttentiveLayer, suffix: str, symbols: bool) -> Cell:
    """The step of `kreiss.recurrence.memory.reference`, with U_a of every stored state beside it."""
    weights, u, n, short = layer._weights(suffix), getattr(layer, f"weight_ih_{suffix}"), layer.hidden_size, layer.short
    bias = _bias_of(layer, suffix)
    rule = next(name for name, cls in RULES.items() if type(layer.rule) is cls)
    sizes: dict[str, Any] = {
        "n": n, "short": short, "relevant": layer.relevant, "slots": layer.relevant + (short or 0),
        "mixing": _number(layer.mixing), "half": _number(0.5 / layer.mixing),
    }  # fmt: skip
    rows, biased = len(weights.recurrent), bias is not None
    threshold = layer.nonlinearity == "modrelu" and not layer.lstm
    body = ATTEND.format(**sizes) + f"    float z[{rows}];\n"
    body += _start("z", rows, "$_b" if biased and not threshold else None) + _add_input("z", u, symbols)
    body += _add_state("z", weights.recurrent, state="mixed")
    if layer.lstm:
        body += _lstm_gates(n)
    else:
        phi = _phi(layer.nonlinearity, "$_b" if biased else None)
        body += f"    for (int i = 0; i < {n}; ++i) {{ s->h[i] = {phi}; }}\n"
    reads = READS.format(**sizes) if rule == "relevance" else ""
    reset = "    s->reads[at] = 0.0f;\n" if reads else ""
    surprise = SURPRISE.format(**sizes) if rule == "surprise" else ""
    if rule in SCORES:
        body += SCREEN.format(**sizes, score=SCORES[rule].format(**sizes), reads=reads)
    else:
        body += ONLY_SHORT.format(**sizes)
    body += PUSH.format(**sizes, surprise=reset + surprise)
    given = {
        "u": u, "v": weights.recurrent, "b": bias, "query": weights.query, "key": weights.key, "score": weights.score,
        "gate": weights.gate,
    }  # fmt: skip
    return Cell(n, _arrays(given), _screened_fields(sizes, layer.lstm, rule), body)


def _screened_fields(sizes: dict[str, Any], lstm: bool, rule: str) -> str:
    n, slots = sizes["n"], sizes["slots"]
    arrays = {"h": n, "c": n, "query": n, "stored": slots * n, "keys": slots * n, "scores": sizes["relevant"]}
    extra = {"relevance": "reads", "surprise": "surprise"}.get(rule)
    if not lstm:
        del arrays["c"]
    if extra:
        arrays[extra] = sizes["short"]
    return f"float {', '.join(f'{name}[{size}]' for name, size in arrays.items())}; uint64_t steps; int kept;"


def _number(value: float) -> str:
    text = f"{value:.9g}"
    return (text if "." in text or "e" in text else f"{text}.0") + "f"
