"""Functions with constant weights as the modules that they are: ``aten::linear`` as ``nn.Linear``.

Modules carry their weights with them, as pnnx writes them, and plutino packs and fuses these. A
function that is no module (its weights are computed, or shared with others) stays what it is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

Arguments = Dict[str, Any]
"""Arguments of a native function by name, defaults included; tensors are nodes of the program."""


class Module(NamedTuple):
    """A module that stands for a call."""

    kind: str
    weights: Dict[str, Any]
    """By name, nodes of constants."""
    inputs: List[Any]
    """Nodes of what it reads, in order."""
    params: Dict[str, Any]
    outputs: Optional[int] = None
    """Results that the module has, where the function has more."""


_MOST_DIMENSIONS = 5
"""Of what modules take that are named for theirs: ``nn.BatchNorm3d``."""


def _shape(node: Any) -> Sequence[Any]:
    shape: Sequence[Any] = node.meta["val"].shape
    return shape


def _are_known(sizes: Sequence[Any]) -> bool:
    """Whether sizes are those of the example in all runs."""
    return all(isinstance(size, int) for size in sizes)


def _affine(a: Arguments) -> Dict[str, Any]:
    """Weight and bias, as far as there are any."""
    return {key: a[key] for key in ("weight", "bias") if a.get(key) is not None}


def _convolution(a: Arguments, rank: int, transposed: bool = False) -> Optional[Module]:
    shape = _shape(a["weight"])
    groups = a["groups"]
    sizes = [a[key] for key in ("stride", "padding", "dilation") if not isinstance(a[key], str)]
    if not _are_known([*shape, groups, *(size for each in sizes for size in _each(each, 1))]):
        return None  # a kernel that is computed, often one for each image
    one, other = shape[0], shape[1] * groups
    padding = a["padding"]
    params = {
        "in_channels": one if transposed else other,
        "out_channels": other if transposed else one,
        "kernel_size": tuple(shape[2:]),
        "stride": _each(a["stride"], rank),
        "padding": padding if isinstance(padding, str) else _each(padding, rank),
        "dilation": _each(a["dilation"], rank),
        "groups": groups,
        "bias": a["bias"] is not None,
        "padding_mode": "zeros",
    }
    if transposed:
        params["output_padding"] = _each(a["output_padding"], rank)
    kind = f"nn.Conv{'Transpose' if transposed else ''}{rank}d"
    return Module(kind, _affine(a), [a["input"]], params)


def _each(sizes: Any, rank: int) -> Any:
    sizes = tuple(sizes) if isinstance(sizes, (list, tuple)) else (sizes,)
    return sizes * rank if len(sizes) == 1 else sizes


def _any_convolution(a: Arguments) -> Optional[Module]:
    return _convolution(a, len(_shape(a["weight"])) - 2, a["transposed"])


def _linear(a: Arguments) -> Optional[Module]:
    shape = _shape(a["weight"])
    if len(shape) != 2:
        return None
    params = {"in_features": shape[1], "out_features": shape[0], "bias": a["bias"] is not None}
    return Module("nn.Linear", _affine(a), [a["input"]], params)


def _batch_norm(a: Arguments) -> Optional[Module]:
    statistics = {key: a[key] for key in ("running_mean", "running_var")}
    affine = _affine(a)
    if None in statistics.values() or len(affine) == 1 or a.get("training"):
        return None
    rank = len(_shape(a["input"]))
    if rank > _MOST_DIMENSIONS:
        return None
    params = {
        "num_features": _shape(a["running_mean"])[0],
        "eps": float(a["eps"]),
        "affine": bool(affine),
    }
    kind = f"nn.BatchNorm{max(rank - 2, 1)}d"
    return Module(kind, {**statistics, **affine}, [a["input"]], params, outputs=1)


def _layer_norm(a: Arguments) -> Optional[Module]:
    affine = _affine(a)
    if "bias" in affine and "weight" not in affine or not _are_known(a["normalized_shape"]):
        return None
    params = {
        "normalized_shape": tuple(a["normalized_shape"]),
        "eps": float(a["eps"]),
        "elementwise_affine": bool(affine),
    }
    if len(affine) == 1:
        params["bias"] = False
    return Module("nn.LayerNorm", affine, [a["input"]], params)


def _rms_norm(a: Arguments) -> Optional[Module]:
    affine = _affine(a)
    if not _are_known(a["normalized_shape"]):
        return None
    params = {
        "normalized_shape": tuple(a["normalized_shape"]),
        "eps": a["eps"],
        "elementwise_affine": bool(affine),
    }
    return Module("nn.RMSNorm", affine, [a["input"]], params)


def _group_norm(a: Arguments) -> Optional[Module]:
    affine = _affine(a)
    channels = _shape(a["input"])[1]
    if len(affine) == 1 or not isinstance(channels, int):
        return None
    params = {
        "num_groups": a["num_groups"],
        "num_channels": channels,
        "eps": float(a["eps"]),
        "affine": bool(affine),
    }
    return Module("nn.GroupNorm", affine, [a["input"]], params)


def _instance_norm(a: Arguments) -> Optional[Module]:
    affine = _affine(a)
    shape = _shape(a["input"])
    if a["running_mean"] is not None or len(affine) == 1 or not isinstance(shape[1], int):
        return None
    if len(shape) > _MOST_DIMENSIONS:
        return None
    params = {"num_features": shape[1], "eps": float(a["eps"]), "affine": bool(affine)}
    return Module(f"nn.InstanceNorm{len(shape) - 2}d", affine, [a["input"]], params)


def _embedding(a: Arguments) -> Optional[Module]:
    shape = _shape(a["weight"])
    params = {"num_embeddings": shape[0], "embedding_dim": shape[1]}
    return Module("nn.Embedding", {"weight": a["weight"]}, [a["indices"]], params)


def _prelu(a: Arguments) -> Optional[Module]:
    shape = _shape(a["weight"])
    if len(shape) != 1:
        return None
    params = {"num_parameters": shape[0]}
    return Module("nn.PReLU", {"weight": a["weight"]}, [a["input"]], params)


def _recurrent(kind: str, gates: int, params: Dict[str, Any]) -> Callable[[Arguments], Any]:
    def module(a: Arguments) -> Optional[Module]:
        if a["train"] and a["dropout"] > 0:
            return None
        directions = 2 if a["bidirectional"] else 1
        rows, biased = directions * a["num_layers"], a["has_biases"]
        nodes: Sequence[Any] = a["params"]
        each = len(nodes) // rows
        projected = each == (5 if biased else 3)
        names = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * biased
        names += ["weight_hr"] * projected
        if each != len(names):
            return None
        weights = {}
        for row in range(rows):
            layer, backwards = divmod(row, directions)
            end = f"_l{layer}{'_reverse' if backwards else ''}"
            for at, name in enumerate(names):
                weights[name + end] = nodes[row * each + at]
        first, second = _shape(nodes[0]), _shape(nodes[1])
        found = {
            "input_size": first[1],
            "hidden_size": first[0] // gates,
            "num_layers": a["num_layers"],
            "bias": bool(biased),
            "batch_first": bool(a["batch_first"]),
            "bidirectional": bool(a["bidirectional"]),
            **params,
        }
        if kind == "nn.LSTM":
            found["proj_size"] = second[1] if projected else 0
        states = a["hx"] if isinstance(a["hx"], (list, tuple)) else [a["hx"]]
        inputs = [a["input"]] + ([] if all(map(_is_zero, states)) else list(states))
        return Module(kind, weights, inputs, found)

    return module


def _cell(kind: str, gates: int, params: Dict[str, Any]) -> Callable[[Arguments], Any]:
    def module(a: Arguments) -> Optional[Module]:
        bias = a["b_ih"] is not None
        if bias != (a["b_hh"] is not None):
            return None
        weights = {"weight_ih": a["w_ih"], "weight_hh": a["w_hh"]}
        if bias:
            weights.update(bias_ih=a["b_ih"], bias_hh=a["b_hh"])
        rows, features = _shape(a["w_ih"])
        sizes = {"input_size": features, "hidden_size": rows // gates, "bias": bias}
        states = a["hx"] if isinstance(a["hx"], (list, tuple)) else [a["hx"]]
        return Module(kind, weights, [a["input"], *states], {**sizes, **params})

    return module


def _is_zero(node: Any) -> bool:
    """Whether a state is the one that the module begins with where it is given none."""
    return str(node.target).startswith(("aten.zeros.", "aten.new_zeros."))


MODULES: Dict[str, Callable[[Arguments], Optional[Module]]] = {
    "conv1d": lambda a: _convolution(a, 1),
    "conv2d": lambda a: _convolution(a, 2),
    "conv3d": lambda a: _convolution(a, 3),
    "conv_transpose1d": lambda a: _convolution(a, 1, True),
    "conv_transpose2d": lambda a: _convolution(a, 2, True),
    "conv_transpose3d": lambda a: _convolution(a, 3, True),
    "convolution": _any_convolution,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "embedding": _embedding,
    "prelu": _prelu,
    "lstm": _recurrent("nn.LSTM", 4, {}),
    "gru": _recurrent("nn.GRU", 3, {}),
    "rnn_tanh": _recurrent("nn.RNN", 1, {"nonlinearity": "tanh"}),
    "lstm_cell": _cell("nn.LSTMCell", 4, {}),
    "gru_cell": _cell("nn.GRUCell", 3, {}),
    "rnn_tanh_cell": _cell("nn.RNNCell", 1, {"nonlinearity": "tanh"}),
    "rnn_relu_cell": _cell("nn.RNNCell", 1, {"nonlinearity": "relu"}),
    "rnn_relu": _recurrent("nn.RNN", 1, {"nonlinearity": "relu"}),
}
"""By native function, what module a call is; ``None`` where it is none."""


def as_module(function: str, arguments: Arguments) -> Optional[Module]:
    """The module that a call is, if its weights are constants (which the caller has to see to)."""
    make = MODULES.get(function)
    return None if make is None else make(arguments)
