"""Writes the table of PyTorch's native functions that plutino-ops reads raw `aten::` operators with.

Started by `cargo xtask native`. A line is a function: its name, a point and the name of its overload where it has one,
then its arguments in order as `name:type` or `name:type=default`. Types:

| letter | type |
|---|---|
| T | tensor |
| s | number |
| i f b c w | int, float, bool, complex, word |
| d | dtype |
| x | device, layout, memory format, generator: nothing that an engine on one CPU has to know |

`[]` behind a letter makes a list, `?` says that it may be None.
"""

import argparse
import re
from pathlib import Path

import torch

TYPES = {
    "Tensor": "T", "Scalar": "s", "int": "i", "SymInt": "i", "float": "f", "bool": "b", "complex": "c", "str": "w",
    "ScalarType": "d", "Device": "x", "Layout": "x", "MemoryFormat": "x", "Generator": "x",
}  # fmt: skip

# Backends, training, and forms of tensors that no exported model holds.
LEFT_OUT = re.compile(
    r"_backward|backward$|_jvp$|^_?cudnn|^_?miopen|^_?mkldnn|^_foreach|^_?sparse|^_nested|^_cslt|^_amp|^_cuda|^_mps"
    r"|^_jagged|^_test|^_thnn|^_?fbgemm|^_cufft|^_transform_bias|^_histogramdd|^_fw_|^_dyn_quant|^_int_mm|^_debug|^__"
    r"|^_assert|^_neg_view$|^_make_|^_to_sparse|^_coalesce|^_fused_(adam|sgd|moving)|^qint|^q_|^_choose_qparams"
    r"|^_convert_weight|^_weight_int|^_scaled_m|^_scaled_g|^_efficient_attention|^_flash_attention"
    r"|cudnn|^set_|^rename|^refine_names|^align_|^to_sparse|^to_mkldnn|^to_padded|^is_(leaf|pinned|distributed|coalesced)"
    r"|^(retain_grad|requires_grad|record_stream|data|set|output_nr|_version|_fused_dropout|_use_.*)$"
)
ARGUMENT = re.compile(r"(\w+)(?:\([^)]*\))?((?:\[\d*\])?\??(?:\[\d*\])?\??)\s+(\w+)(?:=(.*))?$")


def split(arguments: str) -> list[str]:
    """Cuts at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(arguments):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(arguments[start:i])
            start = i + 1
    parts.append(arguments[start:])
    return [part.strip() for part in parts if part.strip() not in ("", "*")]


def argument(text: str) -> str | None:
    found = ARGUMENT.match(text.replace("(a -> *)", ""))
    if found is None or found[1] not in TYPES:
        return None
    kind, suffix, name, default = found.groups()
    suffix = re.sub(r"\d", "", suffix).replace("?[]", "[]").replace("??", "?")
    line = f"{'input' if name == 'self' else name}:{TYPES[kind]}{suffix}"
    return line if default is None else f"{line}={default.replace(' ', '').strip(chr(34) + chr(39))}"


def line(schema, functional: set[str]) -> str | None:
    name, overload = schema.name.removeprefix("aten::"), schema.overload_name
    inplace = name.endswith("_") and not name.endswith("__")
    if inplace and name[:-1] not in functional:
        name, inplace = name[:-1], False  # nothing but in-place, which pnnx writes without the underscore
    out = any(a.is_out for a in schema.arguments) or "out" in overload.split("_") or overload.endswith("_out")
    if inplace or out or LEFT_OUT.search(name) or "imname" in overload:
        return None
    text = str(schema)
    arguments = split(text[text.index("(") + 1 : text.rindex(" ->")].removesuffix(")"))
    lines = [argument(a) for a in arguments]
    if None in lines or not any(":T" in part for part in lines) and "Tensor" not in text.rsplit("->", 1)[1]:
        return None
    return " ".join([f"{name}.{overload}" if overload else name, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    schemas = torch._C._jit_get_all_schemas()
    schemas = [s for s in schemas if s.name.startswith("aten::")]
    functional = {s.name.removeprefix("aten::") for s in schemas}
    lines = {line(s, functional) for s in schemas} - {None}
    version = torch.__version__.split("+")[0]
    head = f"# PyTorch {version}: written by `cargo xtask native`, which says what the letters mean; do not edit.\n"
    args.out.write_text(head + "".join(f"{text}\n" for text in sorted(lines)))
    print(f"{args.out}: {len(lines)} functions of PyTorch {version}")


if __name__ == "__main__":
    main()
