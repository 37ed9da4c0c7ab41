"""Naive transcriptions of the networks over objects: NumPy, one sequence at a time, from the equations.

Each takes the parameters by name and encoded objects e (T, 128), and returns the logits of one sequence.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy import ndarray as Array

Values = dict[str, Array]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def affine(p: Values, name: str, x: Array) -> Array:
    return p[f"{name}.weight"] @ x + p[f"{name}.bias"]


def layer_norm(p: Values, name: str, x: Array) -> Array:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def mlp(p: Values, name: str, x: Array) -> Array:
    return affine(p, f"{name}.2", relu(affine(p, f"{name}.0", x)))


def lstm(p: Values, name: str, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    gates = p[f"{name}.weight_ih"] @ x + p[f"{name}.bias_ih"] + p[f"{name}.weight_hh"] @ h + p[f"{name}.bias_hh"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def normalised(p: Values, e: Array) -> Array:
    """Context normalisation, feature by feature."""
    z = np.empty_like(e)
    for k in range(e.shape[1]):
        column = e[:, k]
        variance = sum((value - column.mean()) ** 2 for value in column) / (len(column) - 1)
        z[:, k] = p["front.norm.gain"][k] * (column - column.mean()) / np.sqrt(variance + 1e-8)
    return z + p["front.norm.shift"]


def views(p: Values, e: Array) -> tuple[Array, Array]:
    """Both sides of a similarity, of any variant."""
    if "views.linear.weight" in p:
        e = np.stack([affine(p, "views.linear", row) for row in e])
    if "views.sides.0.weight" not in p:
        return normalised(p, e), normalised(p, e)
    first, second = (np.stack([affine(p, f"views.sides.{side}", row) for row in e]) for side in (0, 1))
    return normalised(p, first), normalised(p, second)


def similarities(p: Values, e: Array) -> Array:
    """R of CoRelNet."""
    left, right = views(p, e)
    found = np.zeros((len(e), len(e)))
    for i in range(len(e)):
        found[i, : i + 1] = softmax(np.array([left[i] @ right[j] for j in range(i + 1)]))
    return found


def corelnet(p: Values, e: Array, cat: bool = False) -> Array:
    R = similarities(p, e)
    triangle = np.array([R[i, j] for i in range(len(e)) for j in range(i + 1)])
    return mlp(p, "decoder", np.concatenate([triangle, views(p, e)[0].ravel()]) if cat else triangle)


def attention(p: Values, x: Array, tokens: Array, heads: int, key: str = "key") -> tuple[Array, Array]:
    """One object x after attention to tokens, and the mean weights of all heads."""
    size = len(p["attention.query.bias"]) // heads
    read, mean = [], np.zeros(len(tokens))
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        q = affine(p, "attention.query", x)[rows]
        k = [affine(p, f"attention.{key}", token)[rows] for token in tokens]
        v = [affine(p, "attention.value", token)[rows] for token in tokens]
        weights = softmax(np.array([q @ one for one in k]) / np.sqrt(size))
        read.append(sum(weight * one for weight, one in zip(weights, v, strict=True)))
        mean += weights / heads
    x = layer_norm(p, "attention.first_norm", x + affine(p, "attention.out", np.concatenate(read)))
    return layer_norm(p, "attention.second_norm", x + mlp(p, "attention.feedforward", x)), mean


def corelnet_t(p: Values, e: Array) -> Array:
    tokens = similarities(p, e) @ p["places"]
    return mlp(p, "decoder", attention(p, p["reader"], tokens, 8)[0])


def transformer(p: Values, e: Array, key: str = "key") -> tuple[Array, Array]:
    """Logits, and mean attention (T, T)."""
    x = normalised(p, e)
    for t in range(len(x)):
        for i in range(64):
            x[t, 2 * i] += np.sin(t / 10000 ** (2 * i / 128))
            x[t, 2 * i + 1] += np.cos(t / 10000 ** (2 * i / 128))
    attended = [attention(p, one, x, 8, key) for one in x]
    mean = np.mean([layer_norm(p, "norm", out) for out, _ in attended], 0)
    return mlp(p, "decoder", mean), np.stack([weights for _, weights in attended])


def esbn(p: Values, e: Array, cat: bool = False) -> tuple[Array, Array]:
    """Logits, and the weights of every search (T, T)."""
    stored, searched = views(p, e)
    h, c, read = np.zeros(512), np.zeros(512), np.zeros(257)
    memory: list[tuple[Array, Array]] = []  # pairs of key and object
    found = np.zeros((len(e), len(e)))
    for t in range(len(e) + 1):
        last = t == len(e)
        z = np.zeros(128) if last else stored[t]
        h, c = lstm(p, "controller", np.concatenate([read, z]) if cat else read, h, c)
        if last:
            break
        key = relu(affine(p, "key", h))
        if t:
            scores = np.array([searched[t] @ value for _, value in memory])
            found[t, :t] = softmax(scores)
            confidence = sigmoid(p["confidence_gain"] * scores + p["confidence_bias"])
            read = sigmoid(affine(p, "gate", h)) * sum(
                found[t, j] * np.append(memory[j][0], confidence[j]) for j in range(t)
            )
        memory.append((key, z))
    return affine(p, "readout", h), found


def predinet(p: Values, e: Array) -> Array:
    x = np.column_stack([normalised(p, e), np.arange(len(e))])
    out = []
    for head in range(32):
        picked = []
        for side in (0, 1):
            query = p[f"queries.{side}.weight"][head * 16 : (head + 1) * 16] @ x.ravel()
            weights = softmax(np.array([query @ (p["key.weight"] @ one) for one in x]))
            picked.append(weights @ x)
        out += [*(p["compare.weight"] @ (picked[0] - picked[1])), picked[0][-1], picked[1][-1]]
    return mlp(p, "decoder", np.array(out))


def rn(p: Values, e: Array) -> Array:
    x = np.column_stack([normalised(p, e), np.arange(len(e))])
    total = np.zeros(256)
    for one in x:
        for other in x:
            total += relu(affine(p, "second", relu(affine(p, "first", np.concatenate([one, other])))))
    return mlp(p, "decoder", total)


def ntm_head(p: Values, name: str, h: Array, memory: Array, before: Array | None) -> Array:
    key = np.tanh(affine(p, f"{name}.key", h))
    cosines = np.array([key @ row / np.sqrt((key @ key) * (row @ row)) for row in memory])
    w = softmax(softplus(affine(p, f"{name}.strength", h)) * cosines)
    if before is not None:
        gate = sigmoid(affine(p, f"{name}.gate", h))
        w = gate * w + (1 - gate) * before
    shift = softmax(affine(p, f"{name}.shift", h))  # of −1, 0, 1
    w = np.array([sum(shift[s + 1] * w[(i - s) % len(w)] for s in (-1, 0, 1)) for i in range(len(w))])
    w = w ** (1 + softplus(affine(p, f"{name}.sharpen", h)))
    return w / w.sum()


def ntm(p: Values, e: Array) -> Array:
    z = np.vstack([normalised(p, e), np.zeros(128)])
    h, c, read, memory = np.zeros(512), np.zeros(512), np.zeros(256), p["memory"].copy()
    reading = writing = None
    for t, one in enumerate(z):
        h, c = lstm(p, "controller", np.concatenate([one, read]), h, c)
        if t:
            reading = ntm_head(p, "reads", h, memory, reading)
            read = sum(weight * row for weight, row in zip(reading, memory, strict=True))
        writing = ntm_head(p, "writes", h, memory, writing)
        erase, add = sigmoid(affine(p, "erase", h)), np.tanh(affine(p, "add", h))
        memory = np.stack([row * (1 - w * erase) + w * add for w, row in zip(writing, memory, strict=True)])
    return affine(p, "readout", h)


def mnm(p: Values, e: Array) -> tuple[Array, float]:
    """Logits, and the penalty of this sequence."""
    W = [p[f"memory.start_{layer}"].copy() for layer in (1, 2, 3)]
    h, c, read, errors = np.zeros(128), np.zeros(128), np.zeros(128), 0.0

    def active(key: Array) -> list[Array]:
        first = np.tanh(W[0] @ key)
        second = np.tanh(W[1] @ first)
        return [key, first, second, W[2] @ second]

    for one in np.vstack([normalised(p, e), np.zeros(128)]):
        h, c = lstm(p, "controller", np.concatenate([one, read]), h, c)
        heads = affine(p, "heads", h)
        heads = layer_norm(p, "bound", heads) if "bound.weight" in p else np.tanh(heads)
        rate, key, value, query = np.split(heads, 4)
        beta = sigmoid(affine(p, "rate", rate))
        a, targets = active(key), np.split(affine(p, "memory.targets", value), 3)
        for layer in range(3):
            W[layer] = W[layer] - 2 / 128 * beta * np.outer(a[layer + 1] - targets[layer], a[layer])
        errors += np.mean((active(key)[-1] - value) ** 2)
        found = active(query)
        read = found[-1]
        if "memory.projection.weight" in p:
            read = affine(p, "memory.projection", np.concatenate([found[-1], found[-2]]))
    return affine(p, "readout", affine(p, "out", np.concatenate([h, read]))), errors / len(e)


def relconvnet(p: Values, e: Array, group: int, numbers: int = 4) -> Array:
    z = normalised(p, e)
    left = np.stack([affine(p, "left", one) for one in z])
    right = np.stack([affine(p, "right" if "right.weight" in p else "left", one) for one in z])
    filters, _, _, relations = p["filters"].shape
    matched = []
    for members in combinations(range(len(z)), group):
        patch = np.zeros((group, group, relations))
        for x, i in enumerate(members):
            for y, j in enumerate(members):
                for r in range(relations):
                    part = slice(r * numbers, (r + 1) * numbers)
                    patch[x, y, r] = left[i, part] @ right[j, part]
        matched += [np.sum(patch * p["filters"][f]) for f in range(filters)]
    return mlp(p, "decoder", np.array(matched))
