"""A prepared pnnx graph as a PyTorch module."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

import files
from networks import Network


def load(folder: Path, network: Network) -> nn.Module:
    """The module that `model_pnnx.py` describes, with the weights of `model.pnnx.bin`."""
    spec = importlib.util.spec_from_file_location("model_pnnx", folder / "model_pnnx.py")
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    module = code.Model()
    if network.kept_whole:
        # The graph calls the YOLO head by its Python path; make it part of the module, with its weights.
        head = network.build().detect
        weights = files.read_weights(folder / "model.pnnx.bin")
        for name, param in head.named_parameters():
            stored = np.frombuffer(weights[f"detect.{name}"], np.float32).reshape(param.shape)
            param.data = torch.from_numpy(stored.copy())

        def call(*stages: Tensor) -> Tensor:
            return head(list(stages))

        module.head = head
        code.models = SimpleNamespace(yolo=SimpleNamespace(Detect=call))
    return module.eval().requires_grad_(False)
