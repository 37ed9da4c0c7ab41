"""RMSprop, Adam and AdamW in one native call: against torch's own, and where torch's own must run."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import kreiss
from kreiss import native, optim
from kreiss.training.fitting import resume

SHAPES = ((7,), (13, 5), (), (128, 129), (1,), (33, 1))  # with remainders of every vector, and more than one chunk
PAIRS = {"rmsprop": (optim.RMSprop, torch.optim.RMSprop), "adam": (optim.Adam, torch.optim.Adam),
         "adamw": (optim.AdamW, torch.optim.AdamW)}  # fmt: skip
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("rmsprop", {}), ("rmsprop", {"momentum": 0.9, "weight_decay": 0.1}), ("rmsprop", {"centered": True, "alpha": 0.4}),
    ("rmsprop", {"centered": True, "momentum": 0.5, "maximize": True}), ("adam", {"weight_decay": 0.1}),
    ("adam", {"betas": (0.3, 0.9)}), ("adam", {"amsgrad": True, "maximize": True}), ("adamw", {}),
    ("adamw", {"amsgrad": True, "weight_decay": 0.2}),
]  # fmt: skip

needs_kernel = pytest.mark.skipif(native.library() is None, reason="no compiled kernel")


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]


def trained(
    optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], clip: float | None, steps: int = 6
) -> list[nn.Parameter]:
    """Parameters after some steps; gradients of some are missing at times."""
    generator = torch.Generator().manual_seed(2)
    for step in range(steps):
        for index, parameter in enumerate(parameters):
            grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.grad = None if (step + index) % 4 == 3 else grad
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
    return parameters


@torch.no_grad()
def close(ours: Tensor, theirs: Tensor) -> bool:
    limit = 1e-13 if ours.dtype == torch.float64 else 1e-6
    return bool((ours - theirs).abs().max() <= limit * max(1.0, float(theirs.abs().max())))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_a_native_step_is_that_of_torch(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    own, torchs = PAIRS[name]
    parameters, others = weights(dtype), weights(dtype)
    ours = own(parameters, lr=0.01, clip_norm=0.5, **options)
    theirs = torchs(others, lr=0.01, **options)
    trained(ours, parameters, None)
    trained(theirs, others, 0.5)
    assert ours._job() is not None  # the native step ran
    assert all(close(a, b) for a, b in zip(parameters, others, strict=True))
    for a, b in zip(parameters, others, strict=True):
        assert list(ours.state[a]) == list(theirs.state[b])
        assert all(close(ours.state[a][key], theirs.state[b][key]) for key in ours.state[a])
    assert ours.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300) | st.sampled_from([16384, 16385, 40000]), min_size=1, max_size=5),
    chosen=st.sampled_from(OPTIONS), double=st.booleans(), clip=st.sampled_from([None, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_any_list_of_tensors_moves_as_with_torch(
    sizes: list[int], chosen: tuple[str, dict[str, Any]], double: bool, clip: float | None, seed: int
) -> None:
    name, options = chosen
    generator, dtype = torch.Generator().manual_seed(seed), torch.float64 if double else torch.float32
    first = [torch.randn(size, generator=generator, dtype=dtype) for size in sizes]
    ours, theirs = ([nn.Parameter(value.clone()) for value in first] for _ in range(2))
    steps = PAIRS[name][0](ours, lr=1e-3, clip_norm=clip, **options), PAIRS[name][1](theirs, lr=1e-3, **options)
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator, dtype=dtype)
            b.grad = a.grad.clone()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs, clip)
        for optimiser in steps:
            optimiser.step()
    assert all(close(a, b) for a, b in zip(ours, theirs, strict=True) if a.numel())


@needs_kernel
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            parameters = weights(torch.float32)
            results.append(trained(optim.Adam(parameters, clip_norm=0.1), parameters, None))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@needs_kernel
@pytest.mark.parametrize("name", PAIRS)
def test_a_state_of_torch_goes_on_here_and_back(name: str) -> None:
    own, torchs = PAIRS[name]
    parameters, others = weights(torch.float64), weights(torch.float64)
    first, reference = torchs(parameters, lr=0.01), torchs(others, lr=0.01)
    trained(first, parameters, None, 3)
    then = own(parameters, lr=0.01)
    then.load_state_dict(first.state_dict())
    trained(then, parameters, None, 3)
    back = torchs(parameters, lr=0.01)
    back.load_state_dict(then.state_dict())
    trained(back, parameters, None, 2)
    for steps in (3, 3, 2):
        trained(reference, others, None, steps)
    assert all(close(a, b) for a, b in zip(parameters, others, strict=True))


@pytest.mark.parametrize("options", [{"foreach": True}, {"lr": torch.tensor(0.01)}], ids=str)
def test_torchs_own_step_runs_where_the_kernel_does_not(options: dict[str, Any]) -> None:
    parameters, others = weights(torch.float32), weights(torch.float32)
    ours = optim.RMSprop(parameters, clip_norm=0.5, **{"lr": 0.01, **options})
    trained(ours, parameters, None)
    trained(torch.optim.RMSprop(others, lr=0.01), others, 0.5)
    assert ours._job() is None
    assert all(close(a, b) for a, b in zip(parameters, others, strict=True))


def test_gradients_that_are_not_in_memory_as_such_are_read_by_torch() -> None:
    complex_grad = torch.randn(4, dtype=torch.complex64)
    for grad in (complex_grad.conj().imag, torch.randn(8)[::2], torch._efficientzerotensor(4)):
        parameter, other = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        parameter.grad, other.grad = grad, grad.clone()
        optim.Adam([parameter], lr=0.1).step()
        torch.optim.Adam([other], lr=0.1).step()
        assert close(parameter, other)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda optimiser: pickle.loads(pickle.dumps(optimiser))])
def test_a_copied_optimiser_clips_and_steps_as_the_first(name: str, copied: Callable[[Any], Any]) -> None:
    first = PAIRS[name][0](weights(torch.float64), lr=0.1, clip_norm=0.5)
    trained(first, first.param_groups[0]["params"], None)
    second = copied(first)
    ends = [trained(each, each.param_groups[0]["params"], None) for each in (first, second)]
    assert second.clip_norm == 0.5
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def test_hooks_of_a_step_run_once() -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    torch.optim.Adam([parameter])  # torch wraps the step of a class when it is first used
    optimiser, calls = optim.Adam([parameter]), []
    optimiser.register_step_post_hook(lambda *_: calls.append(1))
    parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    assert calls == [1]


def test_the_gradient_norm_is_that_of_torch_and_nan_is_seen() -> None:
    parameters = weights(torch.float32)
    optimiser = optim.RMSprop(parameters)
    assert optimiser.gradient_norm() == 0
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    expected = float(nn.utils.get_total_norm([parameter.grad for parameter in parameters]))
    assert optimiser.gradient_norm() == pytest.approx(expected, rel=1e-6)
    assert parameters[3].grad is not None
    parameters[3].grad[5, 5] = float("nan")
    assert optimiser.gradient_norm() != optimiser.gradient_norm()


def test_a_norm_to_clip_to_must_be_positive_and_a_closure_clips_itself() -> None:
    parameters = weights(torch.float32)
    with pytest.raises(kreiss.InputError, match="`clip_norm` must be positive; got clip_norm=0"):
        optim.Adam(parameters, clip_norm=0.0)
    with pytest.raises(kreiss.InputError, match="got a closure"):
        optim.Adam(parameters, clip_norm=1.0).step(lambda: 0.0)


@needs_kernel
def test_a_run_started_with_steps_of_torch_resumes_with_ours_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"hidden": 8, "task.delay": 4, "clip_norm": 1.0, "steps": 3}
    with monkeypatch.context() as patched:
        patched.setattr(native, "library", lambda: None)
        kreiss.fit("nnrnn", "copy", settings, out=tmp_path / "run", show="none")
    resumed = resume(tmp_path / "run", {"steps": 6}, show="none")
    assert resumed.state == "finished"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["stepped_by"] == [[0, "torch"], [3, "kreiss"]]


@needs_kernel
def test_a_backward_pass_that_needs_former_values_fails_after_a_step() -> None:
    parameter = nn.Parameter(torch.ones(3))
    loss = (parameter**2).sum()
    parameter.grad = torch.ones(3)
    optim.Adam([parameter]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
