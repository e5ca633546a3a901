"""Runs PyTorch models that pnnx exported, on the CPU, without PyTorch.

>>> import plutino                                            # doctest: +SKIP
>>> session = plutino.Session("resnet18.pnnx.param")          # doctest: +SKIP
>>> scores = session(image)                                   # doctest: +SKIP

``docs/python.md`` of the project says more.
"""

from ._errors import (
    BudgetExceeded,
    Cancelled,
    DeadlineExceeded,
    Error,
    ExportError,
    InputError,
    InternalError,
    Interrupted,
    MismatchError,
    ModelError,
    ModelNotFound,
    OperatorError,
    OptionError,
    OutOfMemory,
    StateError,
    StoreError,
    TooLarge,
    UnsupportedOperators,
)
from ._compile import CompiledModule, compile
from ._export import Export, export
from ._native import VERSION as __version__
from ._native import CancelToken
from ._native import isas as instruction_sets
from ._preprocess import save_preprocess
from ._report import Comparison, Memory, Plan, Profile
from ._session import Session, ValueInfo
from ._state import Handle, State
from ._view import View

__all__ = [
    "BudgetExceeded",
    "CancelToken",
    "Cancelled",
    "Comparison",
    "CompiledModule",
    "DeadlineExceeded",
    "Error",
    "Export",
    "ExportError",
    "Handle",
    "InputError",
    "InternalError",
    "Interrupted",
    "Memory",
    "MismatchError",
    "ModelError",
    "ModelNotFound",
    "OperatorError",
    "OptionError",
    "OutOfMemory",
    "Plan",
    "Profile",
    "Session",
    "State",
    "StateError",
    "StoreError",
    "TooLarge",
    "UnsupportedOperators",
    "ValueInfo",
    "View",
    "__version__",
    "compile",
    "export",
    "instruction_sets",
    "save_preprocess",
]
