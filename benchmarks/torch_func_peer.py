"""DP-SGD by hand on torch.func: vmap of grad, clip, sum, noise."""

import numpy as np
import torch
from competitor import Competitor, Setting, batch_of, fresh_model
from torch import Tensor
from torch.func import functional_call, grad, vmap
from workloads import Data

from oso_dp.models.losses import LOSSES


class TorchFunc(Competitor):
    package = "torch"

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        model = fresh_model(setting).requires_grad_(False)
        loss = LOSSES[setting.workload.metric]
        self.values = dict(model.named_parameters())
        self.velocity = {name: torch.zeros_like(value) for name, value in self.values.items()}
        self.batch = batch_of(setting, data)

        def loss_of_one(values: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            outputs = functional_call(model, values, (inputs[None],))
            return loss(outputs, targets[None])[0]

        self.gradients = vmap(grad(loss_of_one), in_dims=(None, 0, 0))

    @torch.no_grad()
    def step(self) -> None:
        setting = self.setting
        gradients = self.gradients(self.values, *self.batch)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        weights = (setting.threshold / norms).clamp(max=1)
        deviation = setting.noise_multiplier * setting.threshold
        for name, value in self.values.items():
            total = torch.tensordot(weights, gradients[name], dims=1)
            total.add_(torch.randn_like(total), alpha=deviation)
            velocity = self.velocity[name].mul_(setting.momentum)
            velocity.add_(total, alpha=1 / setting.batch_size)
            value.sub_(velocity, alpha=setting.learning_rate)

    def parameters(self) -> np.ndarray:
        return torch.cat([value.flatten() for value in self.values.values()])[None].cpu().numpy()
