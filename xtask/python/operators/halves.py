"""Operators of f16 and bf16: https://docs.pytorch.org/docs/stable/tensor_attributes.html

pnnx drops conversions to them, so that the graphs are written by hand; inputs and outputs are f32, for NumPy has no
bf16. A result may be off by one unit in its last place: it is rounded once, but from a sum in f32 that is another
number in another order. (PyTorch's bicubic resizing rounds its factors, and its instance norm the statistics: they
are less exact than one rounding; so are sums with alpha in what vectors of 32 leave over.)"""

from operators.calls import written
from operators.case import Case, floats

UNITS = {"half": 2.0**-10, "bfloat16": 2.0**-7}
IMAGE = (2, 6, 10, 14)
ROWS = (8, 24)

TABLE = {
    "norms": (
        """
        F.batch_norm a $running_mean=b $running_var=c $weight=b $bias=c eps=0.001
        F.layer_norm a normalized_shape=(10,14)
        F.group_norm a $weight=b $bias=c num_groups=3
        F.normalize a dim=1
        F.rms_norm a normalized_shape=(10,14) eps=1e-5
        F.rms_norm d normalized_shape=(10,14)
        """,
        (IMAGE, (6,), floats(6, low=0.5, high=1.5), floats(2, 10, 14, low=-0.002, high=0.002)),
    ),
    "pools": (
        """
        F.max_pool2d a kernel_size=(3,3) stride=(2,2) padding=(1,1)
        F.avg_pool2d a kernel_size=(3,3) stride=(2,2) padding=(1,1)
        F.adaptive_avg_pool2d a output_size=(3,4)
        F.adaptive_avg_pool2d a output_size=(1,1)
        """,
        (IMAGE,),
    ),
    "reductions": (
        """
        torch.sum a dim=(1) keepdim=False
        torch.mean a dim=(0) keepdim=True
        torch.mean b dim=(1) keepdim=False
        torch.amax a dim=(1) keepdim=False
        torch.var a dim=(1) keepdim=False
        torch.std a dim=(1) keepdim=False
        torch.logsumexp a dim=(1) keepdim=False
        torch.norm a dim=(1) keepdim=False p=2.0
        torch.nansum a dim=(1) keepdim=False
        torch.argmin a dim=1 keepdim=False
        """,
        (ROWS, floats(5, 40, low=3000.0, high=5000.0)),
    ),
    "resized": (
        """
        F.interpolate a scale_factor=2.0 mode=nearest
        F.interpolate a scale_factor=2.0 mode=bilinear
        F.interpolate a size=(7,9) mode=bilinear align_corners=True
        """,
        (IMAGE,),
    ),
    "elementwise": (
        """
        torch.add a $other=b alpha=0.3
        torch.sub a $other=b alpha=0.7
        torch.rsub a $other=b alpha=0.3
        torch.addcmul a $tensor1=c $tensor2=b value=0.3
        torch.addcdiv a $tensor1=c $tensor2=b value=0.3
        torch.mul a other=0.3
        torch.div a other=0.7
        torch.add a other=0.3
        torch.lerp a $end=b weight=0.3
        torch.mul a $other=b
        torch.div a $other=b
        F.relu a
        F.silu a
        F.gelu a
        torch.exp a
        torch.tanh a
        torch.clamp a min=-0.7 max=0.7
        F.softmax a dim=1
        F.log_softmax a dim=0
        F.glu a dim=1
        F.pad a pad=(1,2) value=0.1
        torch.maximum a $other=b
        """,
        (ROWS, floats(8, 24, low=0.5), ROWS),
    ),
}


def case(dtype: str, lines: str, inputs: tuple) -> Case:
    """The calls with inputs of this dtype, and results made f32."""
    letters = "abcd"[: len(inputs)]

    def halved(word: str) -> str:
        name, equals, value = word.rpartition("=")
        return f"{name}{equals}half_{value}" if value in letters and name[:1] in ("", "$") else word

    text = [f"half_{letter} = Tensor.to {letter} copy=False dtype=torch.{dtype}" for letter in letters]
    for number, line in enumerate(filter(None, map(str.strip, lines.splitlines()))):
        kind, *words = line.split()
        text.append(" ".join([f"result{number} =", kind, *map(halved, words)]))
        text.append(f"Tensor.to result{number} copy=False dtype=torch.float")
    return written("\n".join(text), *inputs, rtol=UNITS[dtype], atol=1e-6)


CASES = {f"{dtype}_{name}": case(dtype, *of) for name, of in TABLE.items() for dtype in UNITS}
