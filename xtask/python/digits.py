"""A small convolutional network, trained on scikit-learn's handwritten digits (8 x 8, values 0..16)."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import files
from export import Exported, run
from networks import TOLERANCE, describe

EPOCHS = 30
BATCH = 64
REQUIRED_ACCURACY = 0.97


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (1, 16, 32, 64)
        self.conv = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in zip(widths, widths[1:]))
        self.norm = nn.ModuleList(nn.BatchNorm2d(b) for b in widths[1:])
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(widths[-1] * 2 * 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm[0](self.conv[0](x)))
        x = self.pool(self.relu(self.norm[1](self.conv[1](x))))
        x = self.pool(self.relu(self.norm[2](self.conv[2](x))))
        return self.head(torch.flatten(x, 1))


def trained(images: Tensor, labels: Tensor) -> DigitNet:
    torch.manual_seed(0)
    net = DigitNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch], label_smoothing=0.05).backward()
            optimizer.step()
        schedule.step()
    return net.eval()


def write(name: str, target: Path) -> str:
    data = load_digits()
    parts = train_test_split(data.images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    train_raw, held_raw, train_labels, held_labels = parts
    train, held = (torch.from_numpy((raw / 16).astype(np.float32)).unsqueeze(1) for raw in (train_raw, held_raw))
    net = trained(train, torch.from_numpy(train_labels))

    with Exported(net, (held[:1],), (held[:3],)) as exported:
        exported.save(target, weights=True)
        (logits,) = run(exported.module(), held)
        (exact,) = run(exported.module().double(), held.double())
    correct = logits.argmax(1) == held_labels
    if correct.mean() < REQUIRED_ACCURACY:
        raise RuntimeError(f"the network classifies only {correct.mean():.1%} of the held-out digits")

    files.write_npz(target / "inputs.npz", {"in0": held.numpy()})
    files.write_npz(target / "outputs.npz", {"out0": logits})
    files.write_npz(target / "labels.npz", {"labels": held_labels.astype(np.int64)})
    samples = target / "samples"
    samples.mkdir(exist_ok=True)
    for digit in range(10):
        first = np.flatnonzero(correct & (held_labels == digit))[0]
        pixels = np.rint(held_raw[first] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels, mode="L").save(samples / f"{digit}.png")
    fixture = {
        "name": name,
        "source": "scikit-learn's digits, a held-out fifth of 360; pixels are value / 16",
        "weights": "committed",
        "constants": None,
        "inputs": [{"name": "in0", "shape": held.shape, "dtype": "f32", "kind": "file", "file": "inputs.npz"}],
        "outputs": [describe("out0", logits, exact)],
        "tolerance": TOLERANCE,
        "labels": "labels.npz",
        "correct": int(correct.sum()),
    }
    files.write_json(target / "fixture.json", fixture)
    return f"{correct.sum()} of {len(correct)} held-out digits classified correctly ({correct.mean():.2%})"
