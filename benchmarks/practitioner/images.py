"""Networks for images of 32 x 32 pixels."""

import torch
import torch.nn.functional as F  # noqa: N812
from case import Case, classes, images
from torch import Tensor, nn


def cnn() -> Case:
    """Two convolutions with GroupNorm, two Linear layers: 545,290 parameters."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)]
    return Case(nn.Sequential(*layers), images(4000), classes(4000, 10))


class Standardised(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class WideBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, conv: type[nn.Conv2d]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, before), nn.GroupNorm(16, after)
        self.conv1 = conv(before, after, 3, stride, 1, bias=False)
        self.conv2 = conv(after, after, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(x))
        short = x if self.short is None else self.short(hidden)
        return self.conv2(F.relu(self.norm2(self.conv1(hidden)))) + short


def wide_resnet(conv: type[nn.Conv2d] = nn.Conv2d) -> nn.Module:
    """WideResNet-16-4 with GroupNorm: 2.7 M parameters."""
    widths = (16, 64, 128, 256)
    blocks = []
    for number in range(3):
        before, after = widths[number : number + 2]
        blocks.append(WideBlock(before, after, 2 if number else 1, conv))
        blocks.append(WideBlock(after, after, 1, conv))
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        *blocks,
        *(nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(256, 10),
    )


def flip(image: Tensor) -> Tensor:
    return image.flip(-1) if torch.rand(()) < 0.5 else image


def wide_resnet_16_4() -> Case:
    return Case(wide_resnet(), images(500), classes(500, 10), batch_size=16)


def wide_resnet_standardised() -> Case:
    """With weight standardisation."""
    return Case(wide_resnet(Standardised), images(500), classes(500, 10), batch_size=16)


def wide_resnet_augmented() -> Case:
    """With weight standardisation and four views of each example (peers step on one)."""
    options = {"augment": flip, "augmentations": 4}
    model = wide_resnet(Standardised)
    return Case(model, images(500), classes(500, 10), batch_size=16, options=options)


def resnet18_batch_norm() -> Case:
    """torchvision's ResNet-18: BatchNorm, changes in place."""
    from torchvision.models import resnet18

    options = {"fix": True}
    model = resnet18(num_classes=10)
    return Case(model, images(500), classes(500, 10), batch_size=16, options=options)


def vit_tiny() -> Case:
    """timm's smallest vision transformer as it is, patches of 4 x 4 pixels: 5.4 M parameters."""
    import timm

    name, options = "vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4, "num_classes": 10}
    return Case(timm.create_model(name, **options), images(2000), classes(2000, 10), batch_size=32)


def convnext() -> Case:
    """timm's smallest ConvNeXt: depthwise convolutions, LayerScale; 3.4 M parameters."""
    import timm

    model = timm.create_model("convnext_atto", num_classes=10)
    return Case(model, images(500), classes(500, 10), batch_size=16)


class UNet(nn.Module):
    """A U-Net with two levels and skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(3, 16), self.block(16, 32), self.block(32, 64)])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(before, after, 2, stride=2) for before, after in ((64, 32), (32, 16))
        )
        self.decoder = nn.ModuleList([self.block(64, 32), self.block(32, 16)])
        self.head = nn.Conv2d(16, 1, 1)

    @staticmethod
    def block(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.decoder, strict=True):
            x = block(torch.cat([up(x), kept.pop()], dim=1))
        return self.head(x).squeeze(1)


def pixel_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return losses.mean(dim=(1, 2))


def unet() -> Case:
    """Segmentation: a class for each pixel, transposed convolutions."""
    pixels = torch.rand(1000, 32, 32).round()
    return Case(UNet(), images(1000), pixels, pixel_loss, batch_size=32)
