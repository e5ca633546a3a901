"""Programs of models: a module kept whole with its definition, and control flow over definitions."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import files
from export import Exported, run
from models.focus import Focus, TwoFocuses
from operators.case import Values, fill


class Stem(nn.Module):
    """Features, what a first classifier says of them, and whether it is sure."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        features = torch.relu(self.conv(x))
        logits = self.fc(features.mean((2, 3)))
        return features, logits, logits.softmax(-1).max() > 0.5


class Rest(nn.Module):
    """More layers, and a second classifier that is averaged with the first."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, 5)

    def forward(self, features, logits):
        return (self.fc(torch.relu(self.conv(features)).mean((2, 3))) + logits) * 0.5


class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.rest = Stem(), Rest()

    def forward(self, x):
        features, logits, sure = self.stem(x)
        return logits if bool(sure) else self.rest(features, logits)


class Cell(nn.Module):
    """One step of a GRU, out of the weights of one."""

    def __init__(self, gru: nn.GRU):
        super().__init__()
        self.weight_ih, self.weight_hh = gru.weight_ih_l0, gru.weight_hh_l0
        self.bias_ih, self.bias_hh = gru.bias_ih_l0, gru.bias_hh_l0

    def forward(self, h, x):
        ri, zi, ni = F.linear(x, self.weight_ih, self.bias_ih).chunk(3, 1)
        rh, zh, nh = F.linear(h, self.weight_hh, self.bias_hh).chunk(3, 1)
        z = torch.sigmoid(zi + zh)
        n = torch.tanh(ni + torch.sigmoid(ri + rh) * nh)
        h = (1 - z) * n + z * h
        return h, h


class Recurrent(nn.Module):
    """What the scan must be equal to."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(5, 7)

    def forward(self, h, x):
        rows, last = self.gru(x, h[None])
        return last[0], rows


class Step(nn.Module):
    def forward(self, x, a):
        return (x + a / x) * 0.5


class Far(nn.Module):
    def forward(self, x, a):
        return ((x * x - a).abs() / a).max() > 1e-4


class Newton(nn.Module):
    """Square roots, by as many steps as the slowest of them takes."""

    def __init__(self):
        super().__init__()
        self.step, self.far = Step(), Far()

    def forward(self, a):
        x = torch.ones_like(a)
        while bool(self.far(x, a)):
            x = self.step(x, a)
        return x


@dataclass(frozen=True)
class Part:
    """A definition: a module with inputs like those of a call, or the lines of a graph."""

    module: Callable[[nn.Module], nn.Module] | str
    inputs: tuple[Values, ...] = ()
    optlevel: int = 2
    weights: bool = True


@dataclass(frozen=True)
class Program:
    module: Callable[[], nn.Module]
    inputs: tuple[Values, ...]
    inputs2: tuple[Values, ...]
    definitions: dict[str, Part]
    graph: str | None = None
    """The lines of the program; none where pnnx writes it."""
    kept_whole: str | None = None


def values(*shape: int, low: float = -1.0, high: float = 1.0) -> Values:
    return Values(shape, low, high)


PROGRAMS = {
    "kept_whole": Program(
        TwoFocuses,
        (values(1, 3, 8, 8),),
        (values(1, 3, 8, 8, low=-3, high=3),),
        {
            # Names are kept, and no layers are merged: all weights are the nodes'.
            "models.focus.Focus": Part(
                lambda net: net.first, (values(1, 3, 8, 8), values(1, 8, 4, 4)), optlevel=1, weights=False
            )
        },
        kept_whole=f"{Focus.__module__}.{Focus.__name__}",
    ),
    "early_exit": Program(
        EarlyExit,
        (values(1, 3, 16, 16, low=0.0, high=0.05),),
        (values(1, 3, 16, 16, low=20.0, high=60.0),),
        {
            "early.Stem": Part(lambda net: net.stem, (values(1, 3, 16, 16),)),
            "early.Rest": Part(lambda net: net.rest, (values(1, 8, 8, 8), values(1, 5))),
            "early.Exit": Part("""\
pnnx.Input               features                 0 1 0
pnnx.Input               logits                   0 1 1
pnnx.Output              output                   1 0 1"""),
        },
        """\
pnnx.Input               image                    0 1 x #x=(1,3,16,16)f32
early.Stem               stem                     1 3 x features logits sure
plutino.If               exit                     3 1 sure features logits y then=early.Exit else=early.Rest
pnnx.Output              output                   1 0 y""",
    ),
    "gru_scan": Program(
        Recurrent,
        (values(3, 7), values(9, 3, 5)),
        (values(2, 7), values(1, 2, 5)),
        {"rnn.Cell": Part(lambda net: Cell(net.gru), (values(3, 7), values(3, 5)))},
        """\
pnnx.Input               state                    0 1 h #h=(%batch,7)f32
pnnx.Input               rows                     0 1 x #x=(%rows,%batch,5)f32
plutino.Scan             gru                      2 2 h x last y body=rnn.Cell carried=1 scanned=1
pnnx.Output              output                   2 0 last y""",
    ),
    "newton": Program(
        Newton,
        (values(6, low=0.5, high=4.0),),
        (values(2, 40, low=1.0, high=1e4),),
        {
            "newton.Far": Part(lambda net: net.far, (values(6, low=1, high=2), values(6, low=1, high=2))),
            "newton.Step": Part(lambda net: net.step, (values(6, low=1, high=2), values(6, low=1, high=2))),
        },
        """\
pnnx.Input               radicand                 0 1 a #a=(?)f32
torch.ones_like          start                    1 1 a x $input=a
plutino.While            root                     2 1 x a y cond=newton.Far body=newton.Step
pnnx.Output              output                   1 0 y""",
    ),
}


def text(lines: str) -> str:
    words = [line.split() for line in lines.splitlines()]
    return f"7767517\n{len(words)} {sum(int(line[3]) for line in words)}\n{lines}\n"


def write_part(kind: str, part: Part, module: nn.Module, target: Path) -> None:
    if isinstance(part.module, str):
        (target / f"{kind}.pnnx.param").write_text(text(part.module))
        return
    tensors = tuple(value.tensor(f"{kind}.in{i}") for i, value in enumerate(part.inputs))
    with Exported(part.module(module).eval(), tensors, optlevel=part.optlevel) as exported:
        (target / f"{kind}.pnnx.param").write_text(exported.param.read_text())
        entries = files.read_weights(exported.bin)
        if part.weights and entries:
            files.write_zip(target / f"{kind}.pnnx.bin", entries)


def write(name: str, target: Path) -> str:
    """Writes the folder of one program; returns the types of its definitions."""
    program = PROGRAMS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    module = program.module().eval()
    with torch.no_grad():
        fill(name, module)
    (target / "definitions").mkdir(parents=True)
    sets: list[list[Tensor]] = [
        [value.tensor(f"{name}.in{i}" + "b" * number) for i, value in enumerate(inputs)]
        for number, inputs in enumerate((program.inputs, program.inputs2))
    ]
    if program.graph is None:
        with Exported(module, tuple(sets[0]), moduleop=program.kept_whole) as exported:
            exported.save(target, weights=True)
    else:
        (target / "model.pnnx.param").write_text(text(program.graph))
    for kind, part in program.definitions.items():
        write_part(kind, part, module, target / "definitions")
    for number, inputs in enumerate(sets):
        suffix = "2" * number
        files.write_npz(target / f"inputs{suffix}.npz", {f"in{i}": x.numpy() for i, x in enumerate(inputs)})
        outputs = run(module, *inputs)
        files.write_npz(target / f"outputs{suffix}.npz", {f"out{i}": x for i, x in enumerate(outputs)})
    kinds: dict[str, int] = {}
    for op in files.Graph.read(target / "model.pnnx.param").operators:
        kinds[op.kind] = kinds.get(op.kind, 0) + 1
    files.write_json(target / "meta.json", {"ops": dict(sorted(kinds.items())), "rtol": 1e-5, "atol": 1e-5})
    return ", ".join(program.definitions)
