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
from workloads import Data


class PlainSGD(Competitor):
    package = "torch"
    plain = True

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        self.model = fresh_model(setting, self.plain)
        self.criterion = ExampleLoss(setting.workload.metric)
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


class OwnLayersSGD(PlainSGD):
    """The same with the layers that ours has in place of PyTorch's: what is owed to them alone."""

    plain = False

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        if not has_own_layers(self.model):
            raise SkippedError("all layers of this network are PyTorch's own")
