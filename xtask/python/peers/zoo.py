"""What a case is, and the sixteen that engines are compared on where nobody names another set."""

from dataclasses import dataclass, replace

from networks import NETWORKS, BiLstm, Network, uniform


@dataclass(frozen=True)
class Case:
    name: str
    network: Network
    torch: bool = False
    """Whether PyTorch joins: where torch.compile was seen to lead, the transformers and their convolutional kin."""
    ncnn_floats: frozenset[int] = frozenset()
    """Inputs of whole numbers that ncnn must be given as f32: it has no cast, and indexes with the others only."""

    @property
    def batch(self) -> int:
        return self.network.inputs[0]["shape"][0]

    @property
    def recipes(self) -> list[dict]:
        """What `generator.input_values` makes the inputs from, in order."""
        return [
            {"name": f"in{i}", "key": f"{self.name}.in{i}", **recipe} for i, recipe in enumerate(self.network.inputs)
        ]


def batch_of_8(name: str) -> Case:
    return Case(f"{name}_b8", replace(NETWORKS[name], inputs=(uniform(8, 3, 224, 224),)))


LSTM = Network("torch.nn.LSTM, two layers of 2 x 256, 64 steps", lambda: BiLstm(256), (uniform(1, 64, 256),))

PACKAGES = ()
CASES = (
    Case("resnet18", NETWORKS["resnet18"]),
    Case("resnet50", NETWORKS["resnet50"]),
    Case("mobilenet_v2", NETWORKS["mobilenet_v2"]),
    Case("mobilenet_v3_small", NETWORKS["mobilenet_v3_small"]),
    Case("shufflenet_v2_x1_0", NETWORKS["shufflenet_v2_x1_0"]),
    Case("squeezenet1_1", NETWORKS["squeezenet1_1"]),
    Case("efficientnet_b0", NETWORKS["efficientnet_b0"]),
    Case("vit_b_32", NETWORKS["vit_b_32"], torch=True),
    Case("swin_t", NETWORKS["swin_t"], torch=True),
    Case("convnext_tiny", NETWORKS["convnext_tiny"], torch=True),
    Case("yolov5s", NETWORKS["yolov5s"]),
    Case("unet", NETWORKS["unet"]),
    Case("minilm", NETWORKS["minilm"], torch=True, ncnn_floats=frozenset({1})),  # the attention mask
    Case("bilstm", LSTM),
    batch_of_8("resnet18"),
    batch_of_8("mobilenet_v3_small"),
)
