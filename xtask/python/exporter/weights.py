"""Weights and inputs that let errors show.

Freshly initialised transformers hardly attend: their logits are nearly equal, and a mask that is wrong changes nothing.
"""

import torch
from torch import nn


def perturb(module: nn.Module, seed: int = 0) -> nn.Module:
    """Adds noise to all weights, of a deviation by fan-in, 0.3 at most; statistics of norms leave zero and one."""
    random = torch.Generator().manual_seed(seed)

    def noise(tensor: torch.Tensor, deviation: float) -> torch.Tensor:
        return deviation * torch.randn(tensor.shape, generator=random).to(tensor.dtype)

    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point():
                continue
            fan_in = max(parameter[0].numel(), 1) if parameter.dim() > 1 else 100
            parameter.add_(noise(parameter, min(0.3, fan_in**-0.5)))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(noise(buffer, 0.1))
            elif name.endswith("running_var"):
                buffer.mul_(0.75 + 0.5 * torch.rand(buffer.shape, generator=random))
    return module


def floats(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(most: int, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed))
