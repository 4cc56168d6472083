"""DP-SGD by hand in JAX: vmap of grad, clip, sum, noise and update, compiled as one function."""

from functools import cache
from typing import Any

import numpy as np
from competitor import Competitor, Setting, batch_of, fresh_model
from jax_layers import translate
from workloads import Data

from oso_dp.errors import OsoError

_NUMBERS = ("learning_rate", "threshold", "noise_multiplier", "momentum")


class Jax(Competitor):
    package = "jax"

    def __init__(self, setting: Setting, data: Data) -> None:
        import jax

        super().__init__(setting, data)
        try:
            self.device = jax.devices(setting.device)[0]
        except RuntimeError:
            raise OsoError(
                f"--device {setting.device}; the installed jax does not support it"
            ) from None
        model = fresh_model(setting).cpu()
        inputs, targets = batch_of(setting, data)
        with jax.default_device(self.device):
            values = [jax.numpy.array(p.detach().numpy()) for p in model.parameters()]
            self.state = (values, [0 * value for value in values], jax.random.key(0))
            self.batch = jax.numpy.array(inputs.cpu().numpy()), jax.numpy.array(targets.cpu())
        self.numbers = {name: jax.numpy.float32(getattr(setting, name)) for name in _NUMBERS}

    def step(self) -> None:
        self.state = _compiled(self.setting.model)(self.state, *self.batch, self.numbers)

    def finish(self) -> None:
        self.state[0][0].block_until_ready()

    def parameters(self) -> np.ndarray:
        return np.concatenate([np.asarray(value).ravel() for value in self.state[0]])[None]

    def peak_bytes(self) -> int | None:
        stats = self.device.memory_stats()  # None on a CPU
        return stats and stats["peak_bytes_in_use"]


def loss(metric: str, outputs: Any, target: Any) -> Any:
    """Of one example, as in oso_dp.models.losses."""
    import jax

    if metric == "mse":
        return jax.numpy.square(outputs - target).mean()
    return -jax.nn.log_softmax(outputs)[target]


@cache
def _compiled(model: str) -> Any:
    """step(state, inputs, targets, numbers) -> state, compiled once per batch shape."""
    import jax
    from jax import numpy as jnp

    setting = Setting("jax", model)
    apply, metric = translate(fresh_model(setting)), setting.workload.metric

    def loss_of_one(values: list[Any], inputs: Any, target: Any) -> Any:
        return loss(metric, apply(values, inputs[None])[0], target)

    per_example = jax.vmap(jax.grad(loss_of_one), in_axes=(None, 0, 0))

    def step(state: Any, inputs: Any, targets: Any, numbers: dict[str, Any]) -> Any:
        values, velocity, key = state
        gradients = per_example(values, inputs, targets)
        squares = sum(jnp.square(g).reshape(len(g), -1).sum(axis=1) for g in gradients)
        weights = jnp.minimum(1, numbers["threshold"] / jnp.sqrt(squares))
        deviation = numbers["noise_multiplier"] * numbers["threshold"]
        key, *keys = jax.random.split(key, 1 + len(values))
        for i, gradient in enumerate(gradients):
            total = jnp.tensordot(weights, gradient, axes=1)
            total += deviation * jax.random.normal(keys[i], total.shape)
            velocity[i] = numbers["momentum"] * velocity[i] + total / len(inputs)
            values[i] = values[i] - numbers["learning_rate"] * velocity[i]
        return values, velocity, key

    return jax.jit(step, donate_argnums=0)
