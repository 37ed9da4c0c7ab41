"""Cross-entropy in one native call: against torch's own, and where torch's own must run."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kreiss import native
from kreiss.tasks import crossentropy
from kreiss.tasks.crossentropy import CLASSES, NO_TARGET, cross_entropy, reference
from test_hostile_kernel import DISGUISES, by_disguise, seeded, shown
from test_kernel import F64

F32 = torch.float32
SIZES = ((1, 1), (3, 2), (7, 9), (16, 10), (300, 10), (255, 4), (257, 9), (512, 2), (600, CLASSES))
MANY = ((5, CLASSES + 1), (40, 128), (7, 512))
LIMITS = {F64: 1e-12, F32: 2e-6}


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert native.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each call that is left to torch."""
    found: list[str] = []
    original = reference

    def noted(output: Tensor, targets: Tensor, reduction: str) -> Tensor:
        found.append(reduction)
        return original(output, targets, reduction)

    monkeypatch.setattr(crossentropy, "reference", noted)
    return found


def problem(rows: int, classes: int, dtype: torch.dtype = F64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits of very different size, and targets of which one in five is none."""
    source = seeded(seed)
    logits = torch.randn(rows, classes, generator=source, dtype=F64) * 4 ** (torch.arange(rows) % 4)[:, None]
    targets = torch.randint(classes, (rows,), generator=source)
    return logits.to(dtype), torch.where(torch.rand(rows, generator=source) < 0.2, NO_TARGET, targets)


def results(loss: Callable[..., Tensor], output: Tensor, targets: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """The loss and the gradient of three times it."""
    leaf = output.detach().requires_grad_()
    value = loss(leaf, targets, reduction)
    return value.detach(), torch.autograd.grad(3 * value, leaf)[0]


def assert_as_torch(output: Tensor, targets: Tensor, reduction: str = "mean") -> None:
    limit = LIMITS[output.dtype]
    expected = results(reference, shown(output), shown(targets), reduction)
    for found, wanted in zip(results(cross_entropy, output, targets, reduction), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=limit, atol=limit, equal_nan=True)


# ---------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_and_gradient_are_those_of_torch(reduction, dtype, width, calls):
    if not native.loaded().kreiss_use_isa(width):
        pytest.skip("not on this machine")
    try:
        for size in SIZES:
            assert_as_torch(*problem(*size, dtype), reduction)
    finally:
        assert any(native.loaded().kreiss_use_isa(each) for each in (64, 32, 16))
    assert not calls


@pytest.mark.parametrize("size", MANY, ids=str)
def test_more_classes_are_left_to_torch(size, calls):
    assert_as_torch(*problem(*size))
    assert len(calls) == 1


def test_random_sizes_are_right():
    source = random.Random(0)
    for seed in range(60):
        size = source.randint(1, 600), source.randint(1, 20)
        assert_as_torch(*problem(*size, source.choice((F32, F64)), seed), source.choice(("mean", "sum")))


def test_leading_dimensions_are_rows():
    output, targets = problem(30, 9)
    loss, grad = results(cross_entropy, output.view(5, 6, 9), targets.view(5, 6), "mean")
    assert grad.shape == (5, 6, 9)
    torch.testing.assert_close(loss, reference(output, targets, "mean"), rtol=1e-12, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_numbers_that_are_not_finite_are_as_in_torch(dtype, bad):
    for column in (0, 3, 8):
        output, targets = problem(20, 9, dtype)
        targets[:3] = torch.tensor([3, 5, NO_TARGET])
        output[:3, column] = bad
        output[9] = bad
        assert_as_torch(output, targets)
        assert_as_torch(output, targets, "sum")


def test_logits_far_apart_neither_overflow_nor_vanish():
    output = torch.tensor([[0.0, 1e4, -1e4], [-700.0, 0.0, -744.0], [3e38, -3e38, 0.0]], dtype=F64)
    for target in range(3):
        assert_as_torch(output, torch.full((3,), target))
        assert_as_torch(output.float(), torch.full((3,), target))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_without_any_target_the_mean_is_nan_and_the_gradient_zero(reduction, calls):
    output, _ = problem(10, 9)
    loss, grad = results(cross_entropy, output, torch.full((10,), NO_TARGET), reduction)
    assert loss.isnan() if reduction == "mean" else loss == 0
    assert not grad.any()
    assert not calls


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crossentropy, "SHARE", 1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(results(cross_entropy, *problem(2000, 10, F32), "mean"))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for pair in found[1:] for one, other in zip(pair, found[0], strict=True))


# ---------------------------------------------------------------- derivatives


def test_gradients_of_both_orders_are_right():
    output, targets = problem(7, 5)
    output = (output / 50).requires_grad_()
    assert torch.autograd.gradcheck(cross_entropy, (output, targets))
    assert torch.autograd.gradgradcheck(cross_entropy, (output, targets))


def test_a_graph_that_is_kept_gives_the_same_gradient_twice():
    output, targets = problem(7, 5)
    leaf = output.requires_grad_()
    loss = cross_entropy(leaf, targets)
    first = torch.autograd.grad(loss, leaf, retain_graph=True)[0].mul_(2)
    assert torch.equal(first, 2 * torch.autograd.grad(loss, leaf)[0])


def test_no_gradient_is_computed_where_none_is_wanted():
    output, targets = problem(7, 5)
    with torch.no_grad():
        assert not cross_entropy(output.requires_grad_(), targets).requires_grad
    assert not cross_entropy(output.detach(), targets).requires_grad


# ---------------------------------------------------------------- hostile tensors, and what is left to torch


@by_disguise
@pytest.mark.parametrize("which", ["logits", "targets"])
def test_tensors_in_disguise_are_read_as_what_they_are(which, disguise):
    if which == "targets" and disguise == "conjugated view":
        pytest.skip("there are no complex integers")
    output, targets = problem(12, 12)
    targets = targets.clamp(min=0)
    if which == "logits":
        assert_as_torch(DISGUISES[disguise](output), targets)
    else:
        assert_as_torch(output, DISGUISES[disguise](targets))


def test_strided_and_misaligned_tensors_are_read_as_what_they_are():
    output, targets = problem(12, 12)
    assert_as_torch(output.T, targets)
    assert_as_torch(output[::2, 1:8], targets[::2].clamp(max=6))
    room = torch.empty(output.nbytes + 1, dtype=torch.uint8)
    moved = torch.frombuffer(room.numpy(), dtype=F64, offset=1, count=output.numel()).view_as(output).copy_(output)
    assert_as_torch(moved, targets)


@pytest.mark.parametrize("wrong", [5, -1, 10**12, -(2**63)])
def test_a_target_that_is_no_class_raises_what_torch_raises(wrong):
    output, targets = problem(7, 5)
    targets[3] = wrong
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(output, targets)


def test_what_does_not_fit_raises_what_torch_raises():
    output, targets = problem(7, 5)
    for bad in (targets[:-1], targets.int(), targets.double()):
        with pytest.raises((RuntimeError, ValueError)):
            cross_entropy(output, bad)


def test_what_the_kernel_does_not_read_is_left_to_torch(calls):
    output, targets = problem(7, 5)
    cross_entropy(output.half(), targets)
    cross_entropy(torch.zeros(3, CLASSES + 1), targets[:3].clamp(min=0))
    cross_entropy(output, targets.clamp(min=0).to(torch.uint8))
    cross_entropy(torch.zeros(0, 5), targets[:0])
    cross_entropy(output.as_subclass(torch.nn.Parameter), targets)
    with torch.autocast("cpu"):
        cross_entropy(output, targets)
    torch.func.grad(cross_entropy)(output, targets)
    assert len(calls) == 7


def test_a_compiled_loss_is_that_of_torch():
    output, targets = problem(7, 5)
    compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(
        results(compiled, output, targets, "mean"), results(reference, output, targets, "mean"), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_the_struct_and_the_limit_are_those_of_the_header():
    header = (Path(native.__file__).parent / "recurrence" / "csrc" / "kernel.h").read_text()
    body = header.split("struct kreiss_entropy {")[1].split("};")[0]
    lines = [line.split("//")[0].strip() for line in body.splitlines()]
    names = [part.split()[-1].lstrip("*") for line in lines if line for part in line.rstrip(";").split(",")]
    assert names == [field[0] for field in crossentropy.Job._fields_]
    assert ctypes.sizeof(crossentropy.Job) == 3 * 8 + 2 * 4 + 6 * 8
    assert f"KREISS_CLASSES = {CLASSES} " in header
