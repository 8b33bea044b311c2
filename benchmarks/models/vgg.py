"""VGG-16 (Simonyan and Zisserman 2015, configuration D)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


class VGG(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, count in STAGES:
            for _ in range(count):
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU()]
                inputs = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.classifier(self.features(images).flatten(1)), labels)


def vgg16() -> VGG:
    return VGG()
