"""Folders of small images, and the glyphs in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra, unknown_name
from kreiss.tasks.sources import data

SUFFIXES = (".png", ".bmp", ".gif", ".jpg", ".jpeg", ".webp")
GLYPHS, SIZE = 100, 32


def read_images(images: str | Path) -> NDArray[Any]:
    """Images (K, 3, height, width) in [0, 1]: the embedded "glyphs", or those of a folder in the order of names."""
    if images == "glyphs":
        grey = np.frombuffer(data.embedded("glyphs.gz"), np.uint8).reshape(GLYPHS, 1, SIZE, SIZE)
        return np.repeat(grey / np.float32(255), 3, axis=1)
    folder = Path(images)
    if not folder.is_dir():
        raise unknown_name("images", str(images), ("glyphs", "the path of a folder"))
    files = image_files(folder)
    if not files:
        raise InputError(
            f"`{folder}` must hold images ({', '.join(SUFFIXES)}); got none. Put one file for each glyph there."
        )
    pictures = [_picture(path) for path in files]
    for path, picture in zip(files, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise InputError(
                f"images in `{folder}` must be of one size; got {_size(pictures[0])} in {files[0].name} and "
                f"{_size(picture)} in {path.name}. Resize them."
            )
    for number, picture in enumerate(pictures):
        for earlier, other in zip(files, pictures[:number], strict=False):
            if np.array_equal(picture, other):
                raise InputError(
                    f"images in `{folder}` must differ; got the same pixels in {earlier.name} and "
                    f"{files[number].name}. Remove one of them."
                )
    return np.stack(pictures).transpose(0, 3, 1, 2) / np.float32(255)


def image_files(folder: Path) -> list[Path]:
    """The images in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())


def _picture(path: Path) -> NDArray[Any]:
    """The pixels (height, width, 3) of an image."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Reading images", "images", "pillow") from None
    try:
        with Image.open(path) as image:
            return _on_white(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"`{path}` must be an image; got {' '.join(str(error).split())}. Replace it.") from error


def _on_white(image: Any) -> NDArray[Any]:
    """The pixels (height, width, 3) in 8 bits; what is transparent is white."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of grey, which `convert` would cut off
        grey = (np.asarray(image, dtype=np.int64).clip(0, 2**16 - 1) // 257).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


def _size(picture: NDArray[Any]) -> str:
    return f"{picture.shape[1]} × {picture.shape[0]}"
