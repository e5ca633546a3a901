"""Writes what our readers and our resizing are tested on.

    python xtask/python/golden.py

crates/plutino-tensor/tests/golden/: npy files as NumPy writes them. Each holds -2 .. 3 as 2 rows of 3; what else is special
says the name. crates/plutino-vision/src/resample/antialiased.in: checksums of noise as Pillow resizes it.
crates/plutino-vision/src/resample/letterbox.in: of noise as ultralytics (with OpenCV) letterboxes it.
crates/plutino-vision/src/detect/suppress.in: checksums of what torchvision keeps of random boxes.
crates/plutino-vision/tests/pictures and src/decode/decode.in: small pictures, and checksums of what Pillow reads.
"""

import struct
import zlib

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.ops import batched_nms, nms

CRATES = Path(__file__).parents[2] / "crates"
FOLDER = CRATES / "plutino-tensor/tests/golden"

# Channels, height and width before, and after.
SIZES = """
1 1 1 1 1|1 1 1 5 7|3 1 1 2 3|1 2 2 1 1|3 2 2 3 3|1 2 3 3 2|3 5 7 5 7|3 5 7 7 5|3 5 7 5 3|3 5 7 4 7|1 8 8 8 8|1 28 28 8 8
1 8 8 28 28|3 13 17 6 8|3 13 17 26 34|3 13 17 13 34|3 13 17 1 17|3 13 17 13 1|3 31 29 30 28|3 31 29 32 30|3 31 29 15 14
3 31 29 16 15|3 31 29 3 2|1 64 48 32 24|1 64 48 33 25|1 64 48 31 23|1 64 48 128 96|3 64 48 100 51|3 64 48 7 90|3 64 48 90 7
3 97 101 32 32|3 97 101 96 100|3 97 101 98 102|3 97 101 11 13|3 97 101 97 13|3 97 101 11 101|1 97 101 224 224|3 50 200 24 24
3 200 50 24 24|3 120 160 112 112|3 120 160 64 85|3 120 160 85 64|3 99 1 33 1|3 1 99 1 33|3 99 1 50 2|3 1 99 2 50
1 33 65 17 129|1 65 33 129 17|3 72 72 71 73|3 72 72 36 36|3 256 192 224 224|3 150 150 299 299
"""


def write(name: str, array: np.ndarray, version: tuple[int, int] = (1, 0)):
    with open(FOLDER / f"{name}.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)


def noise(channels: int, height: int, width: int) -> Image.Image:
    state, pixels = 12345, bytearray()
    for _ in range(channels * height * width):
        state = (state * 1664525 + 1013904223) % 2**32
        pixels.append(state >> 24)
    return Image.frombytes("L" if channels == 1 else "RGB", (width, height), bytes(pixels))


def resized():
    lines = []
    for case in SIZES.replace("\n", "|").strip("|").split("|"):
        channels, h, w, height, width = map(int, case.split())
        made = [noise(channels, h, w).resize((width, height), f) for f in [Image.BILINEAR, Image.BICUBIC]]
        lines.append(f'    ("{case}", &[{", ".join(str(zlib.crc32(m.tobytes())) for m in made)}]),\n')
    (CRATES / "plutino-vision/src/resample/antialiased.in").write_text(f"[\n{''.join(lines)}]\n")


# Height and width before, and of the letterbox.
LETTERBOXES = """
1080 810 640 640|427 640 640 640|640 427 640 640|480 640 640 640|3 3 64 64|1 5 32 32|5 1 32 32|7 9 16 16|64 64 32 32|128 64 32 32
33 65 96 96|65 33 96 96|97 101 64 64|200 50 48 48|50 200 48 48|99 98 96 96|98 99 96 96|120 160 320 320|31 29 96 64|29 31 64 96
13 17 17 13|300 300 224 224|256 192 96 96|17 13 640 32|13 17 32 640|72 71 71 72|150 149 75 75|2 2 3 5|2 3 7 2|60 90 30 45
"""


def letterboxed():
    from ultralytics.data.augment import LetterBox

    lines = []
    for case in LETTERBOXES.replace("\n", "|").strip("|").split("|"):
        h, w, height, width = map(int, case.split())
        made = LetterBox((height, width), auto=False)(image=np.ascontiguousarray(noise(3, h, w)))
        assert made.shape == (height, width, 3), made.shape
        lines.append(f'    ("{case}", {zlib.crc32(made.tobytes())}),\n')
    (CRATES / "plutino-vision/src/resample/letterbox.in").write_text(f"[\n{''.join(lines)}]\n")


def boxes(seed: int, count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    state, numbers = seed, []
    for _ in range(count * 6):
        state = (state * 1664525 + 1013904223) % 2**32
        numbers.append(state >> 8)
    rows = np.array(numbers, np.int64).reshape(count, 6)
    x, y, w, h = (np.floor(rows[:, i] / 65536) for i in range(4))
    corners = np.stack((x, y, x + w / 4, y + h / 4), 1).astype("f4")
    return torch.from_numpy(corners), torch.from_numpy((rows[:, 4] / 2**24).astype("f4")), torch.from_numpy(rows[:, 5] % classes)


def suppressed():
    lines = []
    for seed in range(1000):
        count, classes, threshold = 1 + seed * 7 % 97, 1 + seed % 5, 0.05 + seed % 19 * 0.05
        count += 1200 if seed % 50 == 0 else 0  # torchvision's other way
        threshold = round(threshold, 2)
        corners, scores, kinds = boxes(seed, count, classes)
        made = nms(corners, scores, threshold), batched_nms(corners, scores, kinds, threshold)
        checksums = ", ".join(str(zlib.crc32(kept.numpy().tobytes())) for kept in made)
        lines.append(f"    ({count}, {classes}, {threshold:.2f}, {checksums}),\n")
    (CRATES / "plutino-vision/src/detect/suppress.in").write_text(f"[\n{''.join(lines)}]\n")


def run_length(picture: Image.Image) -> bytes:
    """A bitmap of 8 bits whose rows are run-length encoded, which Pillow reads and does not write."""
    rows = np.asarray(picture.convert("L"))[::-1]
    data = b"".join(b"".join(bytes([1, pixel]) for pixel in row) + b"\0\0" for row in rows.tolist()) + b"\0\1"
    palette = b"".join(bytes([i, i, i, 0]) for i in range(256))
    start = 14 + 40 + len(palette)
    header = struct.pack("<2sIHHI", b"BM", start + len(data), 0, 0, start)
    sizes = struct.pack("<IiiHHIIiiII", 40, rows.shape[1], rows.shape[0], 1, 8, 1, len(data), 2835, 2835, 256, 0)
    return header + sizes + palette + data


def decoded():
    folder = CRATES / "plutino-vision/tests/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    x, y = np.meshgrid(np.arange(14), np.arange(9))
    colours = np.stack((200 + 4 * x % 50, 90 * (y % 2) + x, 250 - 28 * y), 2)
    upright = Image.fromarray(colours.astype("u1"))  # blue above
    upright = upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    alpha = upright.copy()
    alpha.putalpha(Image.fromarray((x * 17).astype("u1")))
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[274] = 6  # turn it to the right
    lossless = {"lossless": True, "exact": True}
    files = {
        "rgb.png": (upright, {}), "grey.png": (upright.convert("L"), {}), "alpha.png": (alpha, {}),
        "palette.png": (upright.quantize(16), {}), "turned.png": (turned, {"exif": exif}),
        "rgb.bmp": (upright, {}), "grey.bmp": (upright.convert("L"), {}), "alpha.bmp": (alpha, {}),
        "palette.bmp": (upright.quantize(16), {}), "bits.bmp": (upright.convert("1"), {}),
        "lossless.webp": (upright, lossless), "lossy.webp": (upright, {"quality": 60}),
        "alpha.webp": (alpha, lossless), "turned.webp": (turned, lossless | {"exif": exif}),
    }
    for name, (picture, options) in files.items():
        picture.save(folder / name, **options)
    (folder / "rle.bmp").write_bytes(run_length(upright))
    # Decoders of JPEG differ by little: red above, blue below, and not compared to the last bit.
    halves = np.zeros((48, 32, 3), "u1")
    halves[:24, :, 0], halves[24:, :, 2] = 255, 255
    Image.fromarray(halves).transpose(Image.Transpose.ROTATE_90).save(folder / "turned.jpg", exif=exif)
    lines = []
    for name in [*files, "rle.bmp"]:
        if name == "bits.bmp":
            continue  # refused
        read = ImageOps.exif_transpose(Image.open(folder / name))
        rgb = read.convert("RGBA").convert("RGB") if read.mode == "P" else read.convert("RGB")
        lines.append(f'    ("{name}", {zlib.crc32(rgb.tobytes())}),\n')
    (CRATES / "plutino-vision/src/decode/decode.in").write_text(f"[\n{''.join(lines)}]\n")


def main():
    decoded()
    letterboxed()
    resized()
    suppressed()
    FOLDER.mkdir(exist_ok=True)
    x = np.arange(-2, 4).reshape(2, 3)
    for dtype in ["b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]:
        write(dtype, (x * (1 - 2j) if dtype.startswith("c") else x).astype(dtype))
    write("f4_big_endian", x.astype(">f4"))
    write("c16_big_endian", (x * (1 - 2j)).astype(">c16"))
    write("i2_fortran", np.asfortranarray(x.astype("i2")))
    write("f4_version_2", x.astype("f4"), (2, 0))
    write("f4_version_3", x.astype("f4"), (3, 0))
    write("f8_scalar", np.array(-2.0))
    write("f4_empty", np.zeros((3, 0, 2), "f4"))
    write("i8_vector", np.arange(-2, 4))
    # Nothing of ours: refused by name.
    write("refused_u2", x.astype("u2"))
    write("refused_text", np.array(["a", "b"]))
    write("refused_date", np.array(["2026-01-01"], "M8[D]"))
    write("refused_fields", np.zeros(2, [("a", "f4"), ("b", [("c", "i4", (2,)), ("d]'", "S3")])]))
    write("refused_fields_version_3", np.zeros(2, [("größe", "f4")]), (3, 0))


if __name__ == "__main__":
    main()
