"""The wider set: small networks of many families that plutino was not tuned with."""

from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from models.crnn import Crnn
from models.dcgan import Generator
from models.pointnet import PointNet
from models.unet3d import UNet3d
from models.wavenet import WaveNet
from networks import Network, integers, uniform
from peers.zoo import Case

PACKAGES = ("timm", "transformers")
"""Imported where a network is built: the engines, which run prepared graphs, need none of them."""


class Picked(nn.Module):
    """One output out of a dictionary or a tuple."""

    def __init__(self, module: nn.Module, key: str | int, **options: Any):
        super().__init__()
        self.module, self.key, self.options = module, key, options

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs, **self.options)[self.key]


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, out: int):
        super().__init__()
        hiddens = nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        self.layers = nn.Sequential(*hiddens, nn.Linear(hidden, out))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Gru(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gru = nn.GRU(width, hidden, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


def worn(module: nn.Module) -> nn.Module:
    """Moves parameters off the ones and zeros of a fresh module: pnnx leaves out what such do."""
    for parameter in module.parameters():
        if (parameter == parameter.flatten()[0]).all():
            nn.init.uniform_(parameter, 0.5, 1.5)
    return module


def case(name: str, source: str, build: Callable[[], nn.Module], *inputs: dict, compiled: bool = False) -> Case:
    return Case(name, Network(source, lambda: worn(build()), inputs), compiled)


def image(side: int) -> dict:
    return uniform(1, 3, side, side)


def picture(name: str, side: int = 224, compiled: bool = False) -> Case:
    def build() -> nn.Module:
        import timm

        net = timm.create_model(name, pretrained=False).eval()
        with torch.no_grad():
            net(torch.zeros(1, 3, side, side))  # ConViT makes tables in its first run
        return net

    return case(name, f"timm.create_model({name!r})", build, image(side), compiled=compiled)


def vision(name: str, side: int = 224) -> Case:
    def build() -> nn.Module:
        return getattr(torchvision.models, name)(weights=None, init_weights=False)

    return case(name, f"torchvision.models.{name}", build, image(side))


def segmentation(name: str, model: str, side: int) -> Case:
    def build() -> nn.Module:
        make = getattr(torchvision.models.segmentation, model)
        return Picked(make(weights=None, weights_backbone=None), "out")

    return case(name, f"torchvision.models.segmentation.{model}", build, image(side))


def video(name: str) -> Case:
    def build() -> nn.Module:
        return getattr(torchvision.models.video, name)(weights=None)

    return case(name, f"torchvision.models.video.{name}", build, uniform(1, 3, 8, 112, 112))


def transformer(name: str, model: str, config: dict, *inputs: dict, part: str = "") -> Case:
    """The first output of a model of transformers, or of a part of it.

    What `config` leaves out is as in the package.
    """

    def build() -> nn.Module:
        import transformers

        kind = getattr(transformers, model)
        whole = kind(kind.config_class(**config))
        return Picked(whole.get_submodule(part), 0, return_dict=False)

    return case(name, f"transformers.{model}", build, *inputs, compiled=True)


def tokens(count: int, vocabulary: int) -> dict:
    return integers(1, count, high=vocabulary)


T5_SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
WHISPER_TINY = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}

CASES = (
    transformer("bert_1x16", "BertModel", {}, tokens(16, 30522)),
    picture("coatnet_nano_rw_224"),
    picture("convit_tiny", compiled=True),
    case("crnn", "models/crnn.py", Crnn, uniform(1, 1, 32, 160)),
    picture("crossvit_tiny_240", 240, compiled=True),
    picture("cspdarknet53"),
    case("dcgan", "models/dcgan.py", Generator, uniform(1, 100, 1, 1)),
    segmentation("deeplabv3_mnv3", "deeplabv3_mobilenet_v3_large", 320),
    picture("densenet121"),
    transformer("distilbert", "DistilBertModel", {}, tokens(128, 30522)),
    picture("dla34"),
    picture("dpn68"),
    picture("edgenext_small", 256),
    picture("efficientformer_l1"),
    picture("efficientvit_b0"),
    picture("fastvit_t8", 256),
    picture("ghostnet_100"),
    case("gru", "torch.nn.GRU", lambda: Gru(80, 256), uniform(1, 320, 80)),
    picture("hrnet_w18_small"),
    vision("inception_v3", 299),
    picture("lcnet_100"),
    picture("levit_128s"),
    segmentation("lraspp", "lraspp_mobilenet_v3_large", 320),
    video("mc3_18"),
    picture("mixer_s16_224", compiled=True),
    case("mlp", "torch.nn.Linear", lambda: Mlp(64, 256, 10), uniform(1, 64)),
    case("mlp_b256", "torch.nn.Linear", lambda: Mlp(64, 256, 10), uniform(256, 64)),
    picture("mobilenetv4_conv_small"),
    picture("mobileone_s0"),
    picture("mobilevit_s", 256),
    picture("nfnet_l0"),
    case("pointnet", "models/pointnet.py", PointNet, uniform(1, 3, 1024)),
    picture("poolformer_s12"),
    picture("pvt_v2_b0", compiled=True),
    video("r2plus1d_18"),
    picture("regnety_008"),
    picture("repvgg_a0"),
    picture("res2net50_26w_4s"),
    picture("resnetv2_50"),
    picture("resnext50_32x4d"),
    transformer("segformer_b0", "SegformerForSemanticSegmentation", {"num_labels": 150}, image(256)),
    picture("seresnet50"),
    transformer("t5_enc", "T5EncoderModel", T5_SMALL, tokens(64, 32128), part="encoder"),
    case("tcn", "models/wavenet.py", WaveNet, uniform(1, 1, 16000)),
    picture("tf_efficientnetv2_b0"),
    picture("tnt_s_patch16_224", compiled=True),
    case("unet3d", "models/unet3d.py", UNet3d, uniform(1, 1, 32, 64, 64)),
    vision("vgg11"),
    picture("vit_tiny_patch16_224", compiled=True),
    picture("vovnet39a"),
    transformer("wav2vec2", "Wav2Vec2Model", {}, uniform(1, 16000)),
    transformer("whisper_enc", "WhisperModel", WHISPER_TINY, uniform(1, 80, 3000), part="encoder"),
    picture("xcit_tiny_12_p16_224", compiled=True),
)
