"""Which derivatives are being taken: hand-written backward passes cover first-order, reverse-mode, eager autograd."""

from __future__ import annotations

import torch


def forward_mode() -> bool:
    """Whether forward-mode derivatives are being taken."""
    return torch.autograd.forward_ad._current_level >= 0


def ordinary() -> bool:
    """Whether this is plain eager autograd: no torch.func, no forward mode, no compilation."""
    return (
        not torch.compiler.is_compiling()
        and not torch.compiler.is_exporting()
        and not forward_mode()
        and not transformed()
    )


# a compiled graph is traced inside the transforms it is compiled for
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def transformed() -> bool:
    """Whether a torch.func transform is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None
