"""Optimisation under constraints: roles and groups of parameters, penalties, base points, Stiefel steps."""

from kreiss.optim.groups import param_groups as param_groups
from kreiss.optim.native import Adam as Adam
from kreiss.optim.native import AdamW as AdamW
from kreiss.optim.native import RMSprop as RMSprop
from kreiss.optim.penalties import radius_penalty as radius_penalty
from kreiss.optim.penalties import soft_orthogonality as soft_orthogonality
from kreiss.optim.roles import roles as roles
from kreiss.optim.stiefel import Stiefel as Stiefel
from kreiss.optim.upkeep import rebase as rebase
from kreiss.optim.upkeep import rebase_every as rebase_every

__all__ = [
    "Adam", "AdamW", "OneCall", "RMSprop", "Stiefel", "param_groups", "radius_penalty", "rebase", "rebase_every",
    "roles", "soft_orthogonality",
]  # fmt: skip
