"""Plain PyTorch SGD: no clip, no noise. Everything is compared with it."""

import numpy as np
import torch
from competitor import (
    Competitor,
    ExampleLoss,
    Setting,
    SkippedError,
    batch_of,
    flat_parameters,
    fresh_model,
    has_own_layers,
)
from torch import nn
from workloads import Data

from oso_dp.models.losses import LOSSES


class PlainSGD(Competitor):
    package = "torch"
    plain = True

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        self.model = fresh_model(setting, self.plain)
        self.criterion = ExampleLoss(LOSSES[setting.workload.metric])
        self.batch = batch_of(setting, data)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=setting.learning_rate, momentum=setting.momentum
        )

    def step(self) -> None:
        inputs, targets = self.batch
        self.optimizer.zero_grad()
        self.criterion(self.model(inputs), targets).backward()
        self.optimizer.step()

    def parameters(self) -> np.ndarray:
        return flat_parameters(self.model)[None].cpu().numpy()


class BFloat16SGD(PlainSGD):
    """The same as PyTorch offers it in bfloat16: by autocast, channels last."""

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        self.model = _channels_last(self)

    def step(self) -> None:
        with torch.autocast(self.setting.device, torch.bfloat16):
            outputs = self.model(self.batch[0])
        self.optimizer.zero_grad()
        self.criterion(outputs.float(), self.batch[1]).backward()
        self.optimizer.step()


class ChannelsLastSGD(PlainSGD):
    """The same in float32 with channels last."""

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        if self.batch[0].dim() != 4:
            raise SkippedError("this network takes no images")
        self.model = _channels_last(self)


def _channels_last(peer: PlainSGD) -> nn.Module:
    """The peer's model and batch in that order, where it takes images."""
    inputs, targets = peer.batch
    if inputs.dim() != 4:
        return peer.model
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    peer.batch = inputs, inputs if peer.setting.workload.metric == "mse" else targets
    return peer.model.to(memory_format=torch.channels_last)


class OwnLayersSGD(PlainSGD):
    """The same with the layers that ours has in place of PyTorch's: what is owed to them alone."""

    plain = False

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        if not has_own_layers(self.model):
            raise SkippedError("all layers of this network are PyTorch's own")
