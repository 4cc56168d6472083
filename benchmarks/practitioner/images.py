"""Networks for images of 32 x 32 pixels."""

from case import Case, classes, images
from torch import nn


def cnn() -> Case:
    """Two convolutions with GroupNorm, two Linear layers: 545,290 parameters."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)]
    return Case(nn.Sequential(*layers), images(4000), classes(4000, 10))


class Vit(nn.Module):
    """A vision transformer of timm's, whose two parameters outside layers are taken out.

    The class token is replaced by an average of the tokens, and the positions by an Embedding.
    """

    def __init__(self) -> None:
        super().__init__()
        import timm
        import torch

        self.body = timm.create_model(
            "vit_tiny_patch16_224",
            img_size=32,
            patch_size=4,
            num_classes=10,
            class_token=False,
            global_pool="avg",
            pos_embed="none",
        )
        self.places = nn.Embedding(64, self.body.embed_dim)
        self.register_buffer("order", torch.arange(64))

    def forward(self, x):
        patches = self.body.patch_embed(x)
        places = self.order.expand(len(x), -1).contiguous()
        x = self.body.blocks(patches + self.places(places))
        return self.body.forward_head(self.body.norm(x))


def vit_tiny() -> Case:
    """timm's smallest vision transformer, patches of 4 x 4 pixels: 5.4 M parameters."""
    return Case(Vit(), images(2000), classes(2000, 10), batch_size=32)
