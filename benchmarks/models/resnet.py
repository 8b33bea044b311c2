"""ResNet with bottleneck blocks, every channel count times a width (Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * planes
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        return F.relu(self.bn3(self.conv3(h)) + self.shortcut(x))


class WideResNet(nn.Module):
    def __init__(self, depth: int, width: int, classes: int = 1000, blocks: tuple[int, ...] | None = None) -> None:
        super().__init__()
        channels = 64 * width
        self.conv, self.bn = nn.Conv2d(3, channels, 7, 2, padding=3, bias=False), nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks or BLOCKS[depth]):
            planes = 64 * width * 2**stage
            layers: list[nn.Module] = []
            for i in range(count):
                layers.append(Bottleneck(channels, planes, 2 if stage and not i else 1))
                channels = 4 * planes
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = self.pool(F.relu(self.bn(self.conv(images))))
        return F.cross_entropy(self.fc(self.stages(h).mean((2, 3))), labels)
