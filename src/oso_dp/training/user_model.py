"""A user's model, checked, and made with a loss into the gradient code's recipe."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, Precision, check_forward_is_pure
from oso_dp.training.task import Examples
from oso_dp.training.user_loss import Loss, check_loss, make_per_example

_TRIED = 50  # kinds of targets


class UserModel:
    """The user's module, which stays as it is: weights [P] go into copies of it.

    OsoError for what is no module, has nothing to train, is complex, is frozen in part of a layer,
    or drops out at random.
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, nn.Module):
            raise OsoError(f"model: must be a torch.nn.Module, not {type(model).__name__}")
        self.model = model
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.trained:
            raise OsoError("model: has no parameter that requires a gradient")
        for name, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise OsoError(
                    f"model: parameter {name!r} has no shape yet; call the model once, on an "
                    "example, before it trains"
                )
            if parameter.is_complex():
                raise OsoError(
                    f"model: parameter {name!r} holds complex numbers; allowed are real ones"
                )
        for name, layer in model.named_modules():
            if isinstance(layer, torch.jit.ScriptModule):
                raise OsoError(
                    f"model: layer {name!r} is torch.jit's, which nobody can look into; give the "
                    "module that it was made of"
                )
            if isinstance(layer, _DropoutNd) and layer.training and layer.p > 0:
                raise OsoError(
                    f"model: layer {name!r} drops out at random, which is not possible here; leave "
                    "it out, or call its eval()"
                )
            asks = [p.requires_grad for p in layer.parameters(recurse=False)]
            if any(asks) and not all(asks):
                raise OsoError(
                    f"model: layer {name!r} is frozen in part; freeze all of it, or none"
                )

    @property
    def shapes(self) -> list[tuple[str, list[int]]]:
        """Of the parameters that are trained, in the order of the weights."""
        return [(name, list(p.shape)) for name, p in self.trained.items()]

    @property
    def frozen(self) -> dict[str, Tensor]:
        """The parameters that are not trained."""
        return {name: p for name, p in self.model.named_parameters() if not p.requires_grad}

    def weights(self, device: torch.device) -> Tensor:
        """Those that training begins with, float32 [P]; public."""
        parts = [p.detach().flatten().float() for p in self.trained.values()]
        return torch.cat(parts).to(device)

    def with_weights(self, weights: Tensor) -> nn.Module:
        """A copy that has them, [P]."""
        made = copy.deepcopy(self.model)
        parts = weights.detach().split([p.numel() for p in self.trained.values()])
        with torch.no_grad():
            for name, part in zip(self.trained, parts, strict=True):
                parameter = made.get_parameter(name)
                parameter.copy_(part.view_as(parameter))
        return made

    def recipe(self, device: torch.device) -> nn.Module:
        """A copy whose parameters are those that are trained; frozen ones are buffers of it."""
        made = copy.deepcopy(self.model).to(device).float()
        for layer in made.modules():
            for name, parameter in list(layer.named_parameters(recurse=False)):
                if not parameter.requires_grad:
                    delattr(layer, name)
                    layer.register_buffer(name, parameter.detach())
        return made

    def losses_by(self, loss: Loss) -> Loss:
        """The first weights' losses of inputs and targets, on the host."""

        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            return loss(copy.deepcopy(self.model).cpu().float()(inputs), targets)

        return losses

    def check_inputs(self, examples: Examples) -> None:
        """OsoError for whole inputs beyond what the model knows, at which it fails in mid-training.

        Words beyond an embedding's, say. Of examples that are tensors; on the host, where such a
        failure does no harm, the least and the largest value of each place are tried.
        """
        inputs = getattr(examples, "inputs", None)
        if inputs is None or inputs.is_floating_point():
            return
        made, ends = copy.deepcopy(self.model).cpu(), torch.stack(inputs.aminmax(dim=0)).cpu()
        for end in ends:
            try:
                with torch.no_grad():
                    made(end[None])
            except IndexError as error:
                line = " ".join(str(error).split())
                raise OsoError(
                    f"data: inputs hold whole numbers from {ends.min()} to {ends.max()}, of which "
                    f"the model does not take all: {line}"
                ) from error
            except Exception:  # of values that no example has together
                return

    def code(
        self, loss: Loss, examples: Examples, precision: Precision, device: torch.device
    ) -> GradientEngine:
        """OsoError for a loss that is not one per example, or a model that does not take these.

        Also for first weights that are not finite, and for a forward pass that changes the model.
        """
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise OsoError(
                    f"model: parameter {name!r} holds values that are not finite (NaN or infinite)"
                )
        code = GradientEngine(self.recipe(device), make_per_example(loss), precision)
        inputs, targets = (part.new_zeros(3, *part.shape[1:]) for part in examples.empty())
        weights = self.weights(device)
        pure = copy.deepcopy(self.model).to(device).float()
        check_forward_is_pure(pure, examples.empty()[0])
        try:
            with torch.no_grad():
                outputs: Any = code.outputs(weights, inputs)
                losses = code.loss(outputs, targets)
        except OsoError:
            raise
        except Exception as error:  # whatever a model or a loss may do with another shape
            line = " ".join(str(error).split())
            whole = "" if inputs.is_floating_point() else " (whole numbers; float() makes decimals)"
            raise OsoError(
                f"model: fails on three examples of shape {list(inputs.shape[1:])}{whole}, targets "
                f"of shape {list(targets.shape[1:])}: {line}"
            ) from error
        if not torch.is_tensor(outputs):
            raise OsoError(
                f"model: returns a {type(outputs).__name__}; allowed is one tensor (wrap it in a "
                "module whose forward picks that out)"
            )
        if not torch.is_tensor(losses) or losses.shape != (3,):
            gave = list(losses.shape) if torch.is_tensor(losses) else type(losses).__name__
            raise OsoError(
                f"loss: gave {gave} for three examples; it must give one loss of each, [3] "
                "(reduction='none', and a mean over what is one example's)"
            )
        check_loss(code.loss, self.model, outputs, targets)
        return code


def count_classes(code: GradientEngine, weights: Tensor, examples: Examples) -> int:
    """How many the loss tells apart: K of outputs [B, K], where it takes the target K - 1."""
    inputs, targets = (part.new_zeros(3, *part.shape[1:]) for part in examples.empty())
    outputs = code.outputs(weights, inputs).detach()
    if targets.is_floating_point() or targets.dim() != 1 or outputs.dim() != 2:
        return 2
    try:
        code.loss(outputs, targets + outputs.shape[1] - 1)
    except Exception:  # whatever a loss may do with a target that it does not know
        return 2
    return max(2, outputs.shape[1])


def check_targets(code: GradientEngine, weights: Tensor, examples: Examples) -> None:
    """OsoError for a target that is no class of the loss, which fails at it in mid-training.

    Of examples that are tensors, with whole targets [n] and outputs [n, K]; on the host, where such
    a failure does no harm.
    """
    targets = getattr(examples, "targets", None)
    inputs, none = examples.empty()
    outputs = code.outputs(weights, inputs.new_zeros(1, *inputs.shape[1:])).detach().cpu()
    if targets is None or none.is_floating_point() or none.dim() != 1 or outputs.dim() != 2:
        return
    classes = outputs.shape[1]
    loss: Any = code.loss
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss).cpu()

    def takes(target: int) -> bool:
        try:
            loss(outputs, torch.tensor([target]))
        except (IndexError, RuntimeError, ValueError):
            return False
        return True

    if not (takes(0) and takes(classes - 1)):  # a loss of another kind
        return
    others = targets[(targets < 0) | (targets >= classes)].unique()[:_TRIED].tolist()
    refused = [target for target in others if not takes(target)]
    if refused:
        raise OsoError(
            f"data: targets hold {refused[0]}; for this model's {classes} outputs the loss takes "
            f"classes from 0 to {classes - 1}"
        )
