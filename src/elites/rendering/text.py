"""Captions: text on pictures."""

from __future__ import annotations

import numpy as np

_INK = np.array([60.0, 66.0, 74.0], np.float32)[:, None, None]


class Caption:
    """A line of text in the upper left corner of a picture."""

    def __init__(self, text: str, size: tuple[int, int]):
        from PIL import Image, ImageDraw, ImageFont

        width, height = size
        self._mask = np.zeros((0, 0), np.float32)
        if text:
            points = max(height // 18, 10)
            image = Image.new("L", (width, 2 * points), 0)
            font = ImageFont.load_default(points)
            ImageDraw.Draw(image).text((points // 2, points // 3), text, fill=255, font=font)
            self._mask = np.asarray(image, np.float32) / 255

    def on(self, picture: np.ndarray) -> np.ndarray:
        """Write the text on a picture [3, height, width], which is changed, and return it."""
        height, width = self._mask.shape
        target = picture[:, :height, :width]
        target += self._mask * (_INK - target)
        return picture
