"""Layers that are taken whole, beside others whose names begin like theirs."""

from torch import nn

from oso_dp.gradients import GradientEngine


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.attention_out = nn.Linear(4, 4)
        self.attention2 = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.attention_out(self.attention(x, x, x)[0])
        return self.attention2(x, x, x)[0].mean(dim=1)


def test_a_layer_whose_name_begins_like_that_of_one_taken_whole_is_another() -> None:
    code = GradientEngine(Two(), nn.CrossEntropyLoss(reduction="none"))
    assert list(code.layers) == ["attention", "attention_out", "attention2"]
