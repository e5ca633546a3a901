"""Models of timm, torchvision, diffusers, torchaudio, segmentation-models, PyTorch Geometric, ultralytics and PyTorch itself."""

from collections.abc import Callable

import torch
from torch import nn

from .weights import floats, integers


def timm(name: str, size: int = 64, **options) -> Callable:
    def make():
        import timm as library

        return library.create_model(name, pretrained=False, **options), (floats(1, 3, size, size),)

    return make


def torchvision(name: str, size: int = 64, **options) -> Callable:
    def make():
        import torchvision as library

        return library.models.get_model(name, weights=None, **options), (floats(1, 3, size, size),)

    return make


def half(make: Callable, dtype: torch.dtype) -> Callable:
    """A model in half precision."""

    def made():
        module, inputs = make()
        return module.to(dtype), tuple(x.to(dtype) for x in inputs)

    return made


def diffusion(kind: str, inputs: Callable, **options) -> Callable:
    def make():
        import diffusers

        return getattr(diffusers, kind)(**options), inputs()

    return make


def speech(kind: str, inputs: Callable, *args, **options) -> Callable:
    def make():
        import torchaudio

        return getattr(torchaudio.models, kind)(*args, **options), inputs()

    return make


def segmentation(kind: str, encoder: str = "resnet18", size: int = 64) -> Callable:
    def make():
        import segmentation_models_pytorch as library

        return library.create_model(kind, encoder, encoder_weights=None, classes=3), (floats(1, 3, size, size),)

    return make


def graph(kind: str, edges: str = "edge_index", **options) -> Callable:
    """Two convolutions of a graph of 10 nodes and 30 edges."""

    def make():
        import torch_geometric.nn as library

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                layer = getattr(library, kind)
                self.first, self.second = layer(16, 16, **options), layer(16, 16, **options)

            def forward(self, x, edge_index):
                return self.second(self.first(x, edge_index).relu(), edge_index)

        return Network(), (floats(10, 16), integers(10, 2, 30))

    return make


def gin() -> tuple:
    from torch_geometric.nn import GINConv

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GINConv(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)))

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    return Network(), (floats(10, 16), integers(10, 2, 30))


def yolo(name: str) -> Callable:
    def make():
        from ultralytics import YOLO

        module = YOLO(f"{name}.yaml").model
        return module.fuse() if hasattr(module, "fuse") else module, (floats(1, 3, 64, 64),)

    return make


class Recurrent(nn.Module):
    """A recurrent layer and what reads it."""

    def __init__(self, kind: type[nn.Module], **options):
        super().__init__()
        self.layer = kind(12, 16, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.layer(x)[0])


class Counter(nn.Module):
    """A buffer that every call writes to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.linear(x - self.mean)


class Tied(nn.Module):
    """An embedding that is the head, too."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 16), nn.Linear(16, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens).tanh())


class Spectrum(nn.Module):
    """Complex numbers in the middle."""

    def forward(self, x):
        f = torch.fft.rfft(x)
        return torch.fft.irfft(f * torch.exp(-f.abs())), f.angle()


class EarlyExit(nn.Module):
    """A branch over data, with layers in it."""

    def __init__(self):
        super().__init__()
        self.stem, self.head, self.more = nn.Linear(12, 16), nn.Linear(16, 5), nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x).relu()
        scores = self.head(x)
        sure = scores.softmax(-1).max() > 0.9
        return torch.cond(sure, lambda x, s: s * 1, lambda x, s: (s + self.more(x)) / 2, (x, scores))


class Newton(nn.Module):
    """A loop that ends by what it computes."""

    def forward(self, a):
        far = lambda x, n: ((x * x - a).abs().max() > 1e-5) & (n < 30)
        step = lambda x, n: ((x + a / x) / 2, n + 1)
        return torch._higher_order_ops.while_loop(far, step, (torch.ones_like(a), torch.tensor(0)))


class Scanned(nn.Module):
    """A cell over the rows of a sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(12, 16)

    def forward(self, h, rows):
        from torch._higher_order_ops.scan import scan

        def step(h, row):
            h = self.cell(row, h)
            return h, h.tanh()

        return scan(step, h, rows)


class Gated(nn.Module):
    """Python's own branch."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(12, 5), nn.Linear(12, 5)

    def forward(self, x):
        return self.small(x) if x.norm() < 1 else self.large(x)


def module(make: Callable, *inputs: torch.Tensor) -> Callable:
    return lambda: (make(), inputs)


VAE = dict(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
           block_out_channels=(16, 32), layers_per_block=1, latent_channels=4, norm_num_groups=8)  # fmt: skip
UNET = dict(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), cross_attention_dim=32,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            attention_head_dim=8, norm_num_groups=8)  # fmt: skip


def noisy(**more) -> Callable:
    return lambda: {"sample": floats(1, 4, 16, 16), "timestep": torch.tensor([7]), **more}


TIMM = ("resnet18", "resnet26d", "resnext50_32x4d", "wide_resnet50_2", "seresnet18", "densenet121", "dpn48b", "vgg11", "inception_v3",
        "xception41", "mobilenetv2_100", "mobilenetv3_small_100", "mobilenetv4_conv_small", "efficientnet_b0", "efficientnetv2_rw_t",
        "tf_efficientnet_lite0", "mnasnet_100", "fbnetc_100", "ghostnet_100", "hrnet_w18_small", "regnety_002", "repvgg_a0",
        "convnext_atto", "convnextv2_atto", "convmixer_768_32", "mixnet_s", "nf_regnet_b1", "resnest14d", "skresnet18", "dla34",
        "res2net50_14w_8s", "cspresnet50", "darknet53", "vovnet39a", "selecsls42", "tinynet_a", "rexnet_100", "hardcorenas_a",
        "edgenext_xx_small", "mobileone_s0", "fastvit_t8", "repghostnet_050", "starnet_s1", "inception_next_atto", "gernet_s",
        "lcnet_050", "spnasnet_100", "semnasnet_075", "eca_nfnet_l0", "poolformer_s12")  # fmt: skip
TIMM_224 = ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "beit_base_patch16_224", "swin_tiny_patch4_window7_224", "cait_xxs24_224",
            "convit_tiny", "levit_128s", "mixer_s32_224", "gmlp_ti16_224", "resmlp_12_224", "pit_ti_224", "coat_tiny", "xcit_nano_12_p16_224",
            "twins_svt_small", "maxvit_tiny_tf_224", "crossvit_tiny_240", "visformer_tiny", "volo_d1_224", "tnt_s_patch16_224",
            "efficientformer_l1", "mvitv2_tiny", "davit_tiny", "hiera_tiny_224", "eva02_tiny_patch14_224", "nest_tiny", "gcvit_xxtiny",
            "pvt_v2_b0", "vit_relpos_small_patch16_224", "tiny_vit_5m_224", "repvit_m0_9")  # fmt: skip
TORCHVISION = ("resnet18", "alexnet", "vgg11", "squeezenet1_1", "densenet121", "googlenet", "shufflenet_v2_x0_5", "mobilenet_v2",
               "mobilenet_v3_small", "efficientnet_b0", "regnet_y_400mf", "mnasnet0_5", "convnext_tiny", "swin_t", "swin_v2_t")  # fmt: skip
GRAPHS = {"GCNConv": {}, "SAGEConv": {}, "GATConv": {}, "GATv2Conv": {}, "GraphConv": {}, "ChebConv": {"K": 3}, "TAGConv": {},
          "ARMAConv": {}, "TransformerConv": {}, "SGConv": {}, "LEConv": {}, "ClusterGCNConv": {}}  # fmt: skip
YOLOS = ("yolov5n", "yolov8n", "yolov8n-seg", "yolov8n-cls", "yolov8n-pose", "yolov9t", "yolov10n", "yolo11n")

CASES: dict[str, Callable] = {
    **{f"timm {name}": timm(name) for name in TIMM},
    "timm inception_v3": timm("inception_v3", 96),
    **{f"timm {name}": timm(name, 240 if "240" in name else 224) for name in TIMM_224},
    **{f"torchvision {name}": torchvision(name) for name in TORCHVISION},
    "torchvision inception_v3": torchvision("inception_v3", 96, init_weights=False),
    "torchvision vit_b_32": torchvision("vit_b_32", 224),
    "torchvision maxvit_t": torchvision("maxvit_t", 224),
    "torchvision fcn_resnet50": torchvision("fcn_resnet50", weights_backbone=None),
    "torchvision deeplabv3_mobilenet_v3_large": torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    "torchvision lraspp_mobilenet_v3_large": torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
    "torchvision raft_small": lambda: (torchvision("raft_small")()[0], (floats(1, 3, 128, 128), floats(1, 3, 128, 128, seed=2))),
    "torchvision r3d_18": lambda: (torchvision("r3d_18")()[0], (floats(1, 3, 8, 32, 32),)),
    "torchvision ssdlite320_mobilenet_v3_large": torchvision("ssdlite320_mobilenet_v3_large", 320, weights_backbone=None),
    "torchvision resnet18 bf16": half(torchvision("resnet18"), torch.bfloat16),
    "torchvision mobilenet_v2 f16": half(torchvision("mobilenet_v2"), torch.float16),
    "torchvision resnet18 f64": half(torchvision("resnet18"), torch.float64),
    "diffusers AutoencoderKL": diffusion("AutoencoderKL", lambda: {"sample": floats(1, 3, 32, 32)}, **VAE),
    "diffusers UNet2DConditionModel": diffusion("UNet2DConditionModel", noisy(encoder_hidden_states=floats(1, 6, 32)), **UNET),
    "diffusers UNet2DModel": diffusion("UNet2DModel", noisy(), sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
                                       block_out_channels=(32, 64), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8),
    "diffusers DiTTransformer2DModel": diffusion(
        "DiTTransformer2DModel", lambda: {"hidden_states": floats(1, 4, 16, 16), "timestep": torch.tensor([7]), "class_labels": torch.tensor([3])},
        num_attention_heads=4, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=16, num_embeds_ada_norm=10),
    "diffusers VQModel": diffusion("VQModel", lambda: {"sample": floats(1, 3, 32, 32)}, block_out_channels=(16, 32), norm_num_groups=8,
                                   down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
    "diffusers AutoencoderTiny": diffusion("AutoencoderTiny", lambda: {"sample": floats(1, 3, 32, 32)}),
    "torchaudio Conformer": speech("Conformer", lambda: (floats(2, 20, 16), torch.tensor([20, 14])), input_dim=16, num_heads=4, ffn_dim=32,
                                   num_layers=2, depthwise_conv_kernel_size=7),
    "torchaudio ConvTasNet": speech("ConvTasNet", lambda: (floats(1, 1, 800),), num_sources=2, enc_kernel_size=16, enc_num_feats=32,
                                    msk_num_feats=16, msk_num_hidden_feats=32, msk_num_layers=2, msk_num_stacks=1),
    "torchaudio DeepSpeech": speech("DeepSpeech", lambda: (floats(1, 1, 20, 16),), 16, 32, 10),
    "torchaudio Wav2Letter": speech("Wav2Letter", lambda: (floats(1, 1, 1600),), num_classes=10),
    "torchaudio HDemucs": speech("HDemucs", lambda: (floats(1, 2, 44100),), sources=["a", "b"], channels=8),
    "torchaudio Emformer": speech("Emformer", lambda: (floats(1, 24, 16), torch.tensor([24])), 16, 4, 32, 2, 8, right_context_length=4),
    **{f"segmentation-models {kind}": segmentation(kind) for kind in ("unet", "unetplusplus", "linknet", "fpn", "pspnet", "deeplabv3plus",
                                                                      "manet", "pan", "upernet", "segformer")},
    "segmentation-models unet mobilenet": segmentation("unet", "mobilenet_v2"),
    **{f"PyTorch Geometric {kind}": graph(kind, **options) for kind, options in GRAPHS.items()},
    "PyTorch Geometric GINConv": gin,
    **{f"ultralytics {name}": yolo(name) for name in YOLOS},
    "torch LSTM": module(lambda: Recurrent(nn.LSTM), floats(2, 9, 12)),
    "torch LSTM projected": module(lambda: nn.LSTM(12, 16, proj_size=8), floats(9, 2, 12)),
    "torch GRU": module(lambda: Recurrent(nn.GRU), floats(2, 9, 12)),
    "torch RNN": module(lambda: Recurrent(nn.RNN), floats(2, 9, 12)),
    "torch TransformerEncoder": module(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), floats(2, 9, 32)),
    "torch Transformer": module(lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True), floats(2, 9, 32), floats(2, 5, 32, seed=2)),
    "torch MultiheadAttention": module(lambda: nn.MultiheadAttention(32, 4, batch_first=True), *[floats(2, 9, 32, seed=i) for i in range(3)]),
    "torch buffer that is written": module(Counter, floats(4, 8)),
    "torch tied embedding": module(Tied, integers(30, 2, 7)),
    "torch complex spectrum": module(Spectrum, floats(2, 32)),
    "torch cond": module(EarlyExit, floats(2, 12)),
    "torch while_loop": module(Newton, floats(6).abs() + 1),
    "torch scan": module(Scanned, floats(2, 16), floats(9, 2, 12, seed=2)),
    "torch if on data": module(Gated, floats(2, 12)),
}  # fmt: skip
