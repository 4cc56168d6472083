"""Models as people write them, whose layers are not each called once on one row per example."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WORDS, LENGTH, WIDTH, CLASSES = 11, 6, 4, 3


class Net(nn.Module):
    """Layers by name, and what to do with them."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.call = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self, *args, **kwargs)


def rows(count: int) -> Tensor:
    return torch.randn(count, LENGTH, WIDTH)


def words(count: int) -> Tensor:
    return torch.randint(WORDS, (count, LENGTH))


def head() -> nn.Module:
    return nn.Linear(WIDTH, CLASSES)


def tied_linear() -> nn.Module:
    net = Net(
        lambda n, x: n.last(n.b(n.a(x).tanh()).mean(1)),
        a=nn.Linear(WIDTH, WIDTH),
        b=nn.Linear(WIDTH, WIDTH),
        last=head(),
    )
    net.b.weight = net.a.weight
    return net


def two_names() -> nn.Module:
    """As T5, whose encoder holds the table of the model itself; and a layer twice in a list."""
    hidden = nn.Linear(WIDTH, WIDTH)
    net = Net(
        lambda n, w: n.last(n.encoder(n.words(w)).mean(1)),
        words=nn.Embedding(WORDS, WIDTH),
        encoder=Net(lambda n, x: n.twice(x), twice=nn.Sequential(hidden, nn.Tanh(), hidden)),
        last=head(),
    )
    net.encoder.words = net.words
    return net


class Scale(nn.Module):
    """A scale of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.number * x


def language_model(bias: bool) -> nn.Module:
    """Its head shares the table of words; so long a table that factors are kept."""
    net = Net(
        lambda n, w: n.head(n.mixing(n.words(w)).tanh()),
        words=nn.Embedding(WORDS, WIDTH, padding_idx=1),
        mixing=nn.Linear(WIDTH, WIDTH),
        head=nn.Linear(WIDTH, WORDS, bias=bias),
    )
    net.head.weight = net.words.weight
    return net


def other_padding() -> nn.Module:
    """Two tables that share their rows; to one of them, one row is a constant."""
    net = Net(
        lambda n, w: n.last((n.a(w) * n.b(w.flip(1))).mean(1)),
        a=nn.Embedding(WORDS, WIDTH, padding_idx=2),
        b=nn.Embedding(WORDS, WIDTH),
        last=head(),
    )
    net.b.weight = net.a.weight
    return net


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of a language model: the mean over the places."""
    return F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)


def class_token() -> nn.Module:
    """A token and positions [1, ...] beside layers, as vision transformers have them."""

    def forward(n: Any, x: Tensor) -> Tensor:
        x = torch.cat((n.token.expand(len(x), -1, -1), n.inward(x)), dim=1) + n.places
        return n.last(n.block(x)[:, 0])

    net = Net(
        forward,
        inward=nn.Linear(WIDTH, WIDTH),
        block=nn.TransformerEncoderLayer(WIDTH, 2, 5, 0.0, batch_first=True),
        last=head(),
    )
    net.token = nn.Parameter(torch.randn(1, 1, WIDTH))
    net.places = nn.Parameter(torch.randn(1, LENGTH + 1, WIDTH))
    return net


def in_place() -> nn.Module:
    def forward(n: Any, x: Tensor) -> Tensor:
        out = n.a(x)
        out += x
        out = n.relu(out)
        return n.last(n.relu(n.b(out)).mean(1))

    return Net(
        forward,
        a=nn.Linear(WIDTH, WIDTH),
        b=nn.Linear(WIDTH, WIDTH),
        relu=nn.ReLU(inplace=True),
        last=head(),
    )


def positions(shared: Callable[[int], Tensor]) -> nn.Module:
    return Net(
        lambda n, w: n.last((n.words(w) + n.scaled(n.places(shared(w.shape[1])))).tanh().mean(1)),
        words=nn.Embedding(WORDS, WIDTH),
        places=nn.Embedding(LENGTH, WIDTH),
        scaled=nn.Linear(WIDTH, WIDTH),
        last=head(),
    )


def frozen(net: nn.Module, *names: str) -> nn.Module:
    """With these parameters frozen."""
    for name, parameter in list(net.named_parameters()):
        if any(name.endswith(one) for one in names):
            owner, _, key = name.rpartition(".")
            layer = net.get_submodule(owner)
            delattr(layer, key)
            layer.register_buffer(key, parameter.detach())
    return net


def every_layer() -> nn.Module:
    def forward(n: Any, x: Tensor) -> Tensor:
        x = n.norm(n.inward(x))
        x = n.group(n.conv(x.transpose(1, 2)))
        x = n.attention(x.transpose(1, 2), x.transpose(1, 2), x.transpose(1, 2))[0]
        return n.last(n.recurrent(x)[0].mean(1))

    return Net(
        forward,
        inward=nn.Linear(WIDTH, WIDTH),
        norm=nn.LayerNorm(WIDTH),
        conv=nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
        group=nn.GroupNorm(2, WIDTH),
        attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        recurrent=nn.LSTM(WIDTH, WIDTH, batch_first=True),
        last=head(),
    )


def frozen_batch_norm() -> nn.Module:
    norm = nn.BatchNorm1d(WIDTH)
    norm.running_mean += torch.randn(WIDTH)
    return Net(
        lambda n, x: n.last(n.norm(n.inward(x).transpose(1, 2)).mean(2)),
        inward=nn.Linear(WIDTH, WIDTH),
        norm=norm.eval(),
        last=head(),
    )


class Conv1D(nn.Module):
    """Like the one of transformers: a Linear layer whose weight lies the other way round."""

    __module__, __qualname__ = "transformers.pytorch_utils", "Conv1D"

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


def cross_attention(separate: bool) -> nn.Module:
    sizes = {"kdim": 3, "vdim": 5} if separate else {}

    def forward(n: Any, x: Tensor) -> Tensor:
        other = x.flip(1)
        key, value = (
            (other[..., :3], torch.cat((other, x[..., :1]), 2)) if separate else (other,) * 2
        )
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        padding = x[..., 0] > 1.2
        padding[:, 0] = False
        mixed, weights = n.attention(x, key, value, key_padding_mask=padding, attn_mask=causal)
        return n.last(mixed.mean(1) + weights.mean(dim=(1, 2))[:, None])

    return Net(
        forward,
        attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True, **sizes),
        last=head(),
    )


def masked_attention() -> nn.Module:
    """A mask of scores for each example, and no weights."""

    def forward(n: Any, x: Tensor) -> Tensor:
        mask = (x @ x.transpose(1, 2)).detach().repeat_interleave(2, dim=0)
        return n.last(n.attention(x, x, x, attn_mask=mask, need_weights=False)[0].mean(1))

    attention = nn.MultiheadAttention(WIDTH, 2, bias=False, batch_first=True)
    return Net(forward, attention=attention, last=head())


def recurrent(kind: type[nn.RNNBase], **options: Any) -> nn.Module:
    layer = kind(WIDTH, WIDTH, num_layers=2, batch_first=True, bidirectional=True, **options)
    width = 2 * (options.get("proj_size") or WIDTH)
    return Net(
        lambda n, x: n.last(n.layer(x)[0].mean(1)), layer=layer, last=nn.Linear(width, CLASSES)
    )


def checkpointed() -> nn.Module:
    return Net(
        lambda n, x: n.last(
            checkpoint(lambda h: n.b(h).tanh(), n.a(x).tanh(), use_reentrant=False).mean(1)
        ),
        a=nn.Linear(WIDTH, WIDTH),
        b=nn.Linear(WIDTH, WIDTH),
        last=head(),
    )


def table_outside() -> nn.Module:
    """Uses a layer's weight without calling the layer: only torch.func for the whole is right."""
    return Net(
        lambda n, w: n.mixing(n.words(w)).tanh() @ n.words.weight.T,
        words=nn.Embedding(WORDS, WIDTH),
        mixing=nn.Linear(WIDTH, WIDTH),
    )


class StandardConv(nn.Conv2d):
    """Weight standardisation, as written by hand."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        mean, deviation = w.mean((1, 2, 3), keepdim=True), w.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, (w - mean) / (deviation + 1e-3), self.bias, self.stride, self.padding)


class CosineLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.normalize(self.weight, dim=1), bias=self.bias * 2)


class ScaledFirst(nn.Linear):
    """Not a product of its input, but of twice that."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(2 * x, self.weight.tanh(), self.bias)


class ScaledAfter(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.tanh(), self.bias).tanh() * self.weight.mean()


class Everyday(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Any] = rows
    loss: Callable[[Any, Tensor], Tensor] = nn.CrossEntropyLoss(reduction="none")
    targets: tuple[int, ...] = ()  # shape of one
    is_whole_model: bool = False  # which trains by torch.func alone


def two_inputs(count: int) -> tuple[Tensor, Tensor]:
    return rows(count), words(count)


def masked(count: int) -> dict[str, Tensor]:
    mask = torch.rand(count, LENGTH) < 0.7
    mask[:, 0] = True
    return {"ids": words(count), "mask": mask}


def cells(net: Net, ids: Tensor) -> Tensor:
    embedded = net.words(ids)
    state = embedded.new_zeros(len(ids), WIDTH)
    for place in range(ids.shape[1]):
        state = net.cell(embedded[:, place], state)
    return net.last(state)


class Shifted(nn.Module):
    """Trains its bias alone; as attention's keys, its gradient is nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


def attending(net: Net, x: Tensor) -> Tensor:
    return net.last(F.scaled_dot_product_attention(net.queries(x), net.keys(x), x).mean(1))


MODELS = {
    "a bias of attention's keys": Everyday(
        lambda: Net(attending, queries=nn.Linear(WIDTH, WIDTH), keys=Shifted(), last=head())
    ),
    "a bias of attention's keys, taken whole": Everyday(
        lambda: Net(
            lambda n, x: attending(n, n.both(x, x)),
            both=nn.Bilinear(WIDTH, WIDTH, WIDTH),
            queries=nn.Linear(WIDTH, WIDTH),
            keys=nn.Linear(WIDTH, WIDTH),
            last=head(),
        ),
        is_whole_model=True,
    ),
    "a layer of two tensors": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.a(x.mean(1).tanh(), x[:, 0])),
            a=nn.Bilinear(WIDTH, WIDTH, WIDTH),
            last=head(),
        ),
        is_whole_model=True,
    ),
    "a recurrent cell": Everyday(
        lambda: Net(
            cells, words=nn.Embedding(WORDS, WIDTH), cell=nn.GRUCell(WIDTH, WIDTH), last=head()
        ),
        words,
        is_whole_model=True,
    ),
    "a layer called twice": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.a(n.a(x).tanh()).mean(1)), a=nn.Linear(WIDTH, WIDTH), last=head()
        )
    ),
    "a convolution called twice": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.a(n.a(x.transpose(1, 2)).tanh()).mean(2)),
            a=nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
            last=head(),
        )
    ),
    "deep convolutions": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.b(n.a(n.a(n.first(x[:, None]))).tanh()).flatten(1)),
            first=nn.Conv2d(1, 12, 3, (2, 2), 1),
            a=nn.Conv2d(12, 12, (3, 2), padding=(1, 1), dilation=(1, 2)),
            b=nn.Conv2d(12, 14, (2, 1), stride=(2, 1), bias=False),
            last=nn.Linear(28, CLASSES),
        )
    ),
    "a deep convolution's bias, and another's weight": Everyday(
        lambda: frozen(
            Net(
                lambda n, x: n.last(n.b(n.a(n.first(x[:, None]))).tanh().flatten(1)),
                first=nn.Conv2d(1, 12, 3, (2, 2), 1),
                a=nn.Conv2d(12, 12, (3, 2), padding=(1, 1), dilation=(1, 2)),
                b=nn.Conv2d(12, 14, (2, 1), stride=(2, 1)),
                last=nn.Linear(28, CLASSES),
            ),
            "a.weight",
            "b.bias",
        )
    ),
    "a norm called twice": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.a(n.a(x).tanh()).mean(1)), a=nn.LayerNorm(WIDTH), last=head()
        )
    ),
    "an embedding called twice": Everyday(
        lambda: Net(
            lambda n, w: n.last((n.a(w) * n.a(w.flip(1))).mean(1)),
            a=nn.Embedding(WORDS, WIDTH, padding_idx=2),
            last=head(),
        ),
        words,
    ),
    "tied linear layers": Everyday(tied_linear),
    "layers of two names": Everyday(two_names, words),
    "a scale of one number": Everyday(
        lambda: Net(lambda n, x: n.last(n.a(x).tanh().mean(1)), a=Scale(), last=head())
    ),
    "tied tables, one with padding": Everyday(other_padding, words),
    "tied language model": Everyday(lambda: language_model(False), words, mean_loss, (LENGTH,)),
    "tied language model, bias": Everyday(
        lambda: language_model(True), words, mean_loss, (LENGTH,)
    ),
    "class token and places": Everyday(class_token),
    "changes outputs in place": Everyday(in_place),
    "one row of places": Everyday(lambda: positions(lambda n: torch.arange(n)[None]), words),
    "places without a batch": Everyday(lambda: positions(torch.arange), words),
    "biases alone": Everyday(
        lambda: frozen(every_layer(), "weight", "weight_ih_l0", "weight_hh_l0")
    ),
    "weights alone": Everyday(lambda: frozen(every_layer(), "bias", "bias_ih_l0", "bias_hh_l0")),
    "a frozen projection": Everyday(
        lambda: frozen(every_layer(), "in_proj_weight", "in_proj_bias")
    ),
    "frozen batch norm": Everyday(frozen_batch_norm),
    "transposed linear": Everyday(
        lambda: Net(lambda n, x: n.last(n.a(x).tanh().mean(1)), a=Conv1D(WIDTH, WIDTH), last=head())
    ),
    "cross attention": Everyday(lambda: cross_attention(False)),
    "attention with sizes of its own": Everyday(lambda: cross_attention(True)),
    "attention with a mask for each example": Everyday(masked_attention),
    "decoder": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.layer(x, x.flip(1)).mean(1)),
            layer=nn.TransformerDecoderLayer(WIDTH, 2, 5, 0.0, batch_first=True),
            last=head(),
        )
    ),
    "an encoder in eval mode": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.layer(x).mean(1)),
            layer=nn.TransformerEncoderLayer(WIDTH, 2, 5, 0.3, batch_first=True).eval(),
            last=head(),
        )
    ),
    "lstm with projections": Everyday(lambda: recurrent(nn.LSTM, proj_size=3)),
    "gru": Everyday(lambda: recurrent(nn.GRU)),
    "rnn of relu": Everyday(lambda: recurrent(nn.RNN, nonlinearity="relu", bias=False)),
    "checkpointed": Everyday(checkpointed),
    "standardised weights": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.b(n.a(x[:, None])).tanh().mean((2, 3))),
            a=StandardConv(1, 3, 3, padding=1, stride=(1, 2)),
            b=StandardConv(3, WIDTH, 2, bias=False),
            last=head(),
        )
    ),
    **{
        f"{kind.__name__} twice": Everyday(
            lambda kind=kind: Net(
                lambda n, x: n.last(n.a(n.a(x)).tanh().mean(1)), a=kind(WIDTH, WIDTH), last=head()
            )
        )
        for kind in (CosineLinear, ScaledFirst, ScaledAfter)
    },
    "two inputs": Everyday(
        lambda: Net(
            lambda n, x, w: n.last((n.a(x) + n.b(w)).tanh().mean(1)),
            a=nn.Linear(WIDTH, WIDTH),
            b=nn.Embedding(WORDS, WIDTH),
            last=head(),
        ),
        two_inputs,
    ),
    "a dictionary in and out": Everyday(
        lambda: Net(
            lambda n, ids, mask: {
                "logits": n.last((n.a(ids) * mask[..., None]).mean(1)),
                "mask": mask,
            },
            a=nn.Embedding(WORDS, WIDTH),
            last=head(),
        ),
        masked,
        lambda outputs, targets: F.cross_entropy(outputs["logits"], targets, reduction="none"),
    ),
    "a table used outside its layer": Everyday(
        table_outside, words, mean_loss, (LENGTH,), is_whole_model=True
    ),
    "time before the examples": Everyday(
        lambda: Net(
            lambda n, x: n.last(n.a(x.transpose(0, 1)).tanh().mean(0)),
            a=nn.Linear(WIDTH, WIDTH),
            last=head(),
        ),
        is_whole_model=True,
    ),
}
